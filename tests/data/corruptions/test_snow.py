"""Snow against a slow, literal reading of the published definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage

from acclimate.data.corruptions import PRESETS, constants, corrupt
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import quantize
from acclimate.data.corruptions.weather import snow
from photos import photo

SEVERITIES = range(1, 6)
SIZES = [(4, 4), (32, 32), (33, 47), (47, 33)]


def literal_motion(layer: np.ndarray, radius: int, sigma: float, angle: float) -> np.ndarray:
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    total = np.zeros(layer.shape)
    rows, columns = np.indices(layer.shape)
    for step, weight in zip(steps, weights / weights.sum(), strict=True):
        down = math.ceil(step * math.sin(math.radians(angle)) - 0.5)
        right = math.ceil(step * math.cos(math.radians(angle)) - 0.5)
        y = np.clip(rows + down, 0, layer.shape[0] - 1)
        x = np.clip(columns + right, 0, layer.shape[1] - 1)
        total += weight * layer[y, x]
    return total


def literal_snow(
    image: np.ndarray,
    draws: Draws,
    *,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    motion_radius: int,
    motion_sigma: float,
    image_weight: float,
    angle_degrees: tuple[float, float],
) -> np.ndarray:
    height, width = image.shape[:2]
    small = (math.ceil(height / zoom), math.ceil(width / zoom))
    layer = mean + std * draws.normal(1, *small)[0, 0].double().numpy()
    layer = ndimage.zoom(layer, zoom, order=1, mode="nearest")
    top, left = (layer.shape[0] - height) // 2, (layer.shape[1] - width) // 2
    layer = layer[top : top + height, left : left + width]
    layer = np.where(layer < threshold, 0, np.clip(layer, 0, 1))
    layer = np.floor(layer * 255)
    angle = float(angle_degrees[0] + (angle_degrees[1] - angle_degrees[0]) * draws.uniform(1)[0, 0])
    layer = np.round(literal_motion(layer, int(motion_radius), motion_sigma, angle)) / 255
    x = image / 255
    grey = (x @ [0.299, 0.587, 0.114])[..., None]
    x = image_weight * x + (1 - image_weight) * np.maximum(x, grey * 1.5 + 0.5)
    x += layer[..., None] + np.rot90(layer, 2)[..., None]
    return np.uint8(np.clip(x, 0, 1) * 255)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("size", SIZES)
def test_follows_the_definition(size: tuple[int, int], preset: str) -> None:
    image = photo(*size)
    batch = torch.from_numpy(image).permute(2, 0, 1)[None]
    for severity in SEVERITIES:
        numbers = constants("snow", severity, preset=preset)
        for key in range(3):
            keys = torch.tensor([key])
            want = literal_snow(image, Draws(keys), **numbers).astype(int)
            got = quantize(snow(batch, Draws(keys), **numbers))[0].permute(1, 2, 0).numpy()
            # A hair at the threshold decides about a whole flake: one in a thousand values may.
            assert np.percentile(np.abs(got.astype(int) - want), 99.9) <= 1


def test_grey_is_three_equal_channels() -> None:
    grey = photo(33, 47)[None, ..., :1]
    for severity in SEVERITIES:
        one = corrupt(grey, "snow", severity, preset="cifar").astype(int)
        three = corrupt(grey.repeat(3, axis=-1), "snow", severity, preset="cifar")
        assert np.abs(one - three).max() <= 1


def test_flakes_fall_where_there_was_a_peak() -> None:
    """Noise far below the threshold brings no flake: the image only turns pale."""
    black = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    numbers = {**constants("snow", 1, preset="cifar"), "mean": -9.0}
    out = snow(torch.from_numpy(black).movedim(-1, 1), Draws(torch.tensor([1])), **numbers)
    assert out.unique().tolist() == pytest.approx([(1 - numbers["image_weight"]) * 127.5])
