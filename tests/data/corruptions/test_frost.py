"""Frost against a slow, literal reading of the published definition."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from acclimate.data.corruptions import PRESETS, constants, corrupt
from acclimate.data.corruptions import frost as family
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import quantize
from acclimate.data.corruptions.frost import TEXTURES, frost, frost_kind, resized, texture
from photos import photo

SEVERITIES = range(1, 6)
SIZES = [(4, 4), (32, 32), (33, 47), (47, 33)]
# Mean and standard deviation of grey, measured on the five published images.
PUBLISHED = [(130.8, 18.0), (206.9, 22.0), (206.9, 22.0), (151.9, 28.9), (123.5, 43.1)]


@cache
def shrunk(index: int, *, step: int) -> np.ndarray:
    """A texture of the kind in use: every pixel, or the middle one of every five."""
    pixels = texture(index, kind=frost_kind()).permute(1, 2, 0).numpy()
    height, width = (round(side / step) for side in pixels.shape[:2])
    return pixels[step // 2 :: step, step // 2 :: step][:height, :width]


def literal_frost(
    image: np.ndarray,
    draws: Draws,
    *,
    image_weight: float,
    frost_weight: float,
    overlay_scale: float,
) -> np.ndarray:
    height, width = image.shape[:2]
    which = int(draws.integers(0, 5, 1))
    ice = shrunk(which, step=round(1 / overlay_scale))
    down, right = (int(place) / 2**24 for place in draws.integers(0, 2**24, 2)[0])
    top = int(down * max(1, ice.shape[0] - height))
    left = int(right * max(1, ice.shape[1] - width))
    piece = ice[top : top + height, left : left + width]
    return np.uint8(np.clip(image_weight * image + frost_weight * piece + 1e-6, 0, 255))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("size", SIZES)
def test_follows_the_definition(size: tuple[int, int], preset: str) -> None:
    image = photo(*size)
    batch = torch.from_numpy(image).permute(2, 0, 1).expand(12, -1, -1, -1)
    for severity in SEVERITIES:
        numbers = constants("frost", severity, preset=preset)
        got = quantize(frost(batch, Draws(torch.arange(12)), **numbers)).permute(0, 2, 3, 1)
        for key in range(12):
            want = literal_frost(image, Draws(torch.tensor([key])), **numbers).astype(int)
            assert np.abs(got[key].numpy().astype(int) - want).max() <= 1


def test_every_texture_comes_up_and_no_crop_is_like_another() -> None:
    black = torch.zeros(400, 3, 8, 8, dtype=torch.uint8)
    numbers = {"image_weight": 0.0, "frost_weight": 1.0, "overlay_scale": 1.0}
    pieces = frost(black, Draws(torch.arange(400)), **numbers)
    assert len(torch.unique(pieces.flatten(1), dim=0)) > 390
    which = Draws(torch.arange(400)).integers(0, TEXTURES, 1)[:, 0]
    assert which.bincount().min() > 50
    for index in range(TEXTURES):
        mean = texture(index, kind=frost_kind()).float().mean()
        assert pieces[which == index].mean() == pytest.approx(float(mean), rel=0.08)


@pytest.mark.parametrize("size", [(260, 30), (30, 260), (250, 270)])
def test_ice_grows_to_cover_a_large_image(size: tuple[int, int]) -> None:
    numbers = {"image_weight": 0.0, "frost_weight": 1.0, "overlay_scale": 0.2}
    black = torch.zeros(1, 3, *size, dtype=torch.uint8)
    for key in range(6):
        keys = torch.tensor([key])
        original = texture(int(Draws(keys).integers(0, TEXTURES, 1)), kind=frost_kind())
        cover = max(0.2, size[0] / original.shape[1], size[1] / original.shape[2])
        ice = resized(original, cover).unfold(1, size[0], 1).unfold(2, size[1], 1)
        piece = frost(black, Draws(keys), **numbers)[0].to(torch.uint8)
        # It is one of the crops there are, which is to say that there are some.
        found = (ice == piece[:, None, None]).flatten(3).all(dim=3).all(dim=0)
        assert found.any()


# --- the textures --------------------------------------------------------------------------------


@pytest.mark.parametrize("index", range(TEXTURES))
def test_grown_ice_is_as_bright_and_rich_in_contrast_as_published(index: int) -> None:
    ice = texture.__wrapped__(index, kind="frost-procedural")
    assert torch.equal(ice, texture.__wrapped__(index, kind="frost-procedural"))
    grey = ice.double().mean(dim=0)
    mean, std = PUBLISHED[index]
    assert float(grey.mean()) == pytest.approx(mean, rel=0.1)
    assert float(grey.std()) == pytest.approx(std, rel=0.1)
    red, _, blue = ice.double().mean(dim=(1, 2))
    assert red < blue


def test_the_textures_differ() -> None:
    ices = [texture(index, kind="frost-procedural") for index in range(TEXTURES)]
    for i in range(TEXTURES):
        for j in range(i):
            assert (ices[i] != ices[j]).double().mean() > 0.5


def test_published_textures_are_used_where_a_package_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "imagecorruptions" / "frost"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise ImportError('must not be imported')")
    for index, name in enumerate(("1.png", "2.png", "3.png", "4.jpg", "5.jpg")):
        # With alpha, as two of the published ones have it.
        mode = "RGBA" if name.endswith("png") else "RGB"
        Image.new(mode, (60, 50), (40 * index + 20, 10, 250)).save(folder / f"frost{name}")
    caches = (family._published_folder, texture, family._overlays, family._end_to_end)
    for cached in caches:
        cached.cache_clear()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "imagecorruptions", raising=False)
    try:
        assert frost_kind() == "frost"
        black = np.zeros((40, 8, 8, 3), dtype=np.uint8)
        out = corrupt(black, "frost", 1, preset="imagenet")  # 0.4 of the texture
        np.testing.assert_allclose(np.unique(out[..., 0]), [8, 24, 40, 56, 72], atol=2)
        assert out[..., 2].min() >= 98
        assert out[..., 1].max() <= 6
    finally:
        monkeypatch.undo()
        for cached in caches:
            cached.cache_clear()
