"""Spatter against a slow, literal reading of the published definition, OpenCV and a fork."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from acclimate.data.corruptions import PRESETS, constants, corrupt
from acclimate.data.corruptions import spatter as _edges
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import quantize
from acclimate.data.corruptions.spatter import _relief, canny, chamfer_distance, equalize, spatter
from comparing_draws import statistics
from photos import photo

SEVERITIES = range(1, 6)
WATER = range(1, 4)
SIZES = [(4, 4), (5, 9), (32, 32), (33, 47), (47, 33)]


def liquid(
    draws: Draws, size: tuple[int, int], mean: float, std: float, sigma: float
) -> np.ndarray:
    noise = mean + std * draws.normal(1, *size)[0, 0].double().numpy()
    return ndimage.gaussian_filter(noise, sigma, mode="nearest", truncate=4)


def depth_of_water(preset: str, severity: int, size: tuple[int, int], key: int) -> np.ndarray:
    numbers = constants("spatter", severity, preset=preset)
    layer = liquid(Draws(torch.tensor([key])), size, *list(numbers.values())[:3])
    return np.where(layer < numbers["threshold"], 0, np.int64(layer * 255)).astype(np.uint8)


# --- the definition, literally -------------------------------------------------------------------


def literal_canny(depth: np.ndarray, low: int = 50, high: int = 150) -> np.ndarray:
    """A pixel at a time, with the tangent of 22.5° as OpenCV rounds it."""
    padded = np.pad(depth.astype(int), 1, mode="edge")
    height, width = depth.shape
    dx, dy = np.zeros((2, height, width), dtype=int)
    for i, weight in enumerate((1, 2, 1)):
        dx += weight * (padded[i : i + height, 2:] - padded[i : i + height, :-2])
        dy += weight * (padded[2:, i : i + width] - padded[:-2, i : i + width])
    strength = np.pad(np.abs(dx) + np.abs(dy), 1)
    ridge = np.zeros(depth.shape, dtype=bool)
    for y, x in np.ndindex(depth.shape):
        here = strength[y + 1, x + 1]
        across, along = abs(dx[y, x]) * 13573, abs(dy[y, x]) << 15
        if along < across:
            before, after, strictly = strength[y + 1, x], strength[y + 1, x + 2], False
        elif along > across + (abs(dx[y, x]) << 16):
            before, after, strictly = strength[y, x + 1], strength[y + 2, x + 1], False
        else:
            side = -1 if (dx[y, x] ^ dy[y, x]) < 0 else 1
            before, after, strictly = strength[y, x + 1 - side], strength[y + 2, x + 1 + side], True
        on_top = here > before and (here > after or (here == after and not strictly))
        ridge[y, x] = here > low and on_top
    parts, _ = ndimage.label(ridge, structure=np.ones((3, 3)))
    strong = np.unique(parts[ridge & (strength[1:-1, 1:-1] > high)])
    return ridge & np.isin(parts, strong)


def literal_distance(edges: np.ndarray) -> np.ndarray:
    """The shortest way to any edge in steps of 1, 1.4 and 2.1969, by comparing all, at most 20."""
    rows, columns = np.indices(edges.shape)
    best = np.full(edges.shape, 20.0)
    for y, x in zip(*np.nonzero(edges), strict=True):
        down, right = np.abs(rows - y), np.abs(columns - x)
        far, near = np.maximum(down, right), np.minimum(down, right)
        flat = 2.1969 * near + (far - 2 * near)
        slanted = 2.1969 * (far - near) + 1.4 * (2 * near - far)
        best = np.minimum(best, np.where(far >= 2 * near, flat, slanted))
    return best


def literal_equalize(levels: np.ndarray) -> np.ndarray:
    counts = np.bincount(levels.ravel(), minlength=256)
    lowest = int(levels.min())
    if counts[lowest] == levels.size:
        return levels
    scale = np.float32(255) / np.float32(levels.size - counts[lowest])
    counts[lowest] = 0
    table = np.rint(counts.cumsum().astype(np.float32) * scale)
    return table[levels].astype(int)


def box(layer: np.ndarray) -> np.ndarray:
    return ndimage.correlate(layer.astype(float), np.ones((3, 3)), mode="mirror") / 9


def literal_relief(depth: np.ndarray) -> np.ndarray:
    distance = literal_distance(literal_canny(depth))
    layer = literal_equalize(np.floor(box(distance) + 1e-9).astype(int))
    layer = ndimage.correlate(layer, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mode="mirror")
    return np.rint(box(np.clip(layer, 0, 255)))


def literal_spatter(
    image: np.ndarray,
    draws: Draws,
    *,
    mean: float,
    std: float,
    sigma: float,
    threshold: float,
    intensity_or_mud_sigma: float,
    mud: float,
) -> np.ndarray:
    x = image / 255
    layer = liquid(draws, image.shape[:2], mean, std, sigma)
    layer[layer < threshold] = 0
    if mud:
        cover = np.float64(layer > threshold)
        cover = ndimage.gaussian_filter(cover, intensity_or_mud_sigma, mode="nearest", truncate=4)
        cover = np.where(cover < 0.8, 0, cover)[..., None]
        x = x * (1 - cover) + cover * np.array([63, 42, 20]) / 255
    else:
        depth = np.int64(layer * 255).astype(np.uint8)
        shine = depth * literal_relief(depth)
        shine *= intensity_or_mud_sigma / max(shine.max(), 1)
        x = x + shine[..., None] * np.array([175, 238, 238]) / 255
    return np.uint8(np.clip(x, 0, 1) * 255 + 1e-6)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("size", SIZES)
def test_follows_the_definition(size: tuple[int, int], preset: str) -> None:
    image = photo(*size)
    batch = torch.from_numpy(image).permute(2, 0, 1)[None]
    for severity in SEVERITIES:
        numbers = constants("spatter", severity, preset=preset)
        for key in range(3):
            keys = torch.tensor([key])
            want = literal_spatter(image, Draws(keys), **numbers).astype(int)
            got = quantize(spatter(batch, Draws(keys), **numbers))[0].permute(1, 2, 0).numpy()
            assert np.percentile(np.abs(got.astype(int) - want), 99.9) <= 1


def test_a_spatter_is_seen() -> None:
    images = np.stack([photo(32, 32)] * 8)
    for preset in PRESETS:
        for severity in SEVERITIES:
            out = corrupt(images, "spatter", severity, preset=preset).astype(int)
            brighter, darker = (out > images).any(axis=-1), (out < images).any(axis=-1)
            assert brighter.any() if severity in WATER else darker.any()
            if severity in WATER:
                assert not darker.any()


def test_a_dry_lens_changes_nothing() -> None:
    batch = torch.from_numpy(photo(33, 47)).permute(2, 0, 1)[None]
    for severity in SEVERITIES:
        numbers = {**constants("spatter", severity, preset="cifar"), "mean": 0.0, "std": 0.01}
        assert torch.equal(spatter(batch, Draws(torch.tensor([1])), **numbers), batch.float())


def test_the_same_in_any_batch() -> None:
    images = np.stack([photo(33, 47), photo(33, 47)[::-1], photo(33, 47)[:, ::-1]])
    for preset in PRESETS:
        for severity in SEVERITIES:
            whole = corrupt(images, "spatter", severity, preset=preset)
            for i in range(3):
                alone = corrupt(images[i : i + 1], "spatter", severity, preset=preset, start=i)
                np.testing.assert_array_equal(alone[0], whole[i])
    for severity in SEVERITIES:
        assert corrupt(images[:0], "spatter", severity, preset="cifar").shape == (0, 33, 47, 3)


# --- edges and distances -------------------------------------------------------------------------


# Small, so that images lie close by one another; large, so that points are far from any edge.
@pytest.mark.parametrize(
    ("preset", "severity", "size", "count"),
    [("cifar", 3, (9, 8), 40), ("imagenet", 1, (72, 90), 4)],
)
def test_the_relief_is_right_to_the_bit(
    preset: str, severity: int, size: tuple[int, int], count: int
) -> None:
    depths = np.stack([depth_of_water(preset, severity, size, key) for key in range(count)])
    together = _relief(torch.from_numpy(depths.astype(np.int16)))
    for depth, relief in zip(depths, together, strict=True):
        np.testing.assert_array_equal(relief.numpy(), literal_relief(depth))


@pytest.mark.parametrize(("preset", "side", "count"), [("imagenet", 224, 24), ("cifar", 32, 300)])
def test_the_rounds_suffice_for_weak_edges(
    preset: str, side: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for severity in WATER:
        layers = [depth_of_water(preset, severity, (side, side), key) for key in range(count)]
        depths = torch.from_numpy(np.stack(layers).astype(np.int16))
        edges = canny(depths, low=50, high=150)
        with monkeypatch.context() as patch:
            patch.setattr(_edges, "_ROUNDS", 1000)
            assert torch.equal(edges, canny(depths, low=50, high=150))


@pytest.mark.parametrize("size", [(224, 224), (32, 32), (33, 47), (4, 7)])
def test_helpers_are_opencvs_to_the_bit(size: tuple[int, int]) -> None:
    cv2 = pytest.importorskip("cv2")
    preset = "imagenet" if size == (224, 224) else "cifar"
    for severity in WATER:
        for key in range(20):
            depth = depth_of_water(preset, severity, size, key)
            layer = torch.from_numpy(depth.astype(np.int16))[None]
            edges = cv2.Canny(depth, 50, 150)
            np.testing.assert_array_equal(canny(layer, low=50, high=150)[0], edges > 0)
            distance = np.minimum(cv2.distanceTransform(255 - edges, cv2.DIST_L2, 5), 20)
            ours = chamfer_distance(torch.from_numpy(edges > 0)[None], limit=20)[0] / 10_000
            np.testing.assert_allclose(ours, distance, atol=1e-5)
            levels = cv2.blur(distance, (3, 3)).astype(np.uint8)
            equal = cv2.equalizeHist(levels)
            ours = equalize(torch.from_numpy(levels.astype(np.int64))[None], count=21)[0]
            np.testing.assert_array_equal(ours, equal)
            kernel = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
            relief = cv2.blur(cv2.filter2D(equal, cv2.CV_8U, kernel), (3, 3))
            np.testing.assert_array_equal(_relief(layer)[0], relief)


# --- the fork, in distribution -------------------------------------------------------------------


@pytest.mark.parametrize("severity", SEVERITIES)
def test_agrees_with_imagecorruptions_in_distribution(severity: int) -> None:
    fork = pytest.importorskip("imagecorruptions")
    image, count = photo(), 96
    ours = corrupt(np.stack([image] * count), "spatter", severity, preset="imagenet")
    np.random.seed(severity)
    theirs = [
        fork.corrupt(image, severity=severity, corruption_name="spatter") for _ in range(count)
    ]
    a, b = statistics(ours, image), statistics(np.stack(theirs), image)
    error = np.hypot(a.std(axis=0), b.std(axis=0)) / count**0.5
    excess = np.abs(a.mean(axis=0) - b.mean(axis=0)) - 3.5 * error
    assert (excess < 0.03 * np.abs(b.mean(axis=0))).all()
