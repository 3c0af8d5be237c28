"""Spatter against a slow, literal reading of the published definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from acclimate.data.corruptions import PRESETS, constants, corrupt
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import quantize
from acclimate.data.corruptions.spatter import spatter
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
