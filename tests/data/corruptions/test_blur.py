"""Blurs against slow, literal readings of the published definitions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import ndimage

from acclimate.data.corruptions import constants, corrupt
from acclimate.data.corruptions.blur import motion_blur
from acclimate.data.corruptions.draws import Draws
from photos import photo

NAMES = ["defocus_blur", "gaussian_blur", "motion_blur", "zoom_blur"]
SEVERITIES = range(1, 6)
SIZES = [(4, 4), (32, 32), (33, 47), (47, 33)]


def assert_agree(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    assert got.dtype == want.dtype == np.uint8
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


# --- the definitions, literally ------------------------------------------------------------------


def literal_gaussian(image: np.ndarray, sigma: float) -> np.ndarray:
    x = ndimage.gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest", truncate=4)
    return np.uint8(np.clip(x, 0, 1) * 255)


def literal_disk(radius: float, alias_blur: float) -> np.ndarray:
    grid = np.arange(-8, 9) if radius <= 8 else np.arange(-radius, radius + 1)
    x, y = np.meshgrid(grid, grid)
    disk = np.float64(x**2 + y**2 <= radius**2)
    disk /= disk.sum()
    reach = 1 if radius <= 8 else 2
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * alias_blur**2))
    weights /= weights.sum()
    for axis in (0, 1):
        disk = ndimage.correlate1d(disk, weights, axis=axis, mode="mirror")
    return disk


def literal_defocus(image: np.ndarray, radius: float, alias_blur: float) -> np.ndarray:
    kernel = literal_disk(radius, alias_blur)[..., None]
    return np.uint8(np.clip(ndimage.correlate(image / 255, kernel, mode="mirror"), 0, 1) * 255)


def literal_clipped_zoom(image: np.ndarray, zoom: float) -> np.ndarray:
    middle = image
    for axis in (0, 1):
        length = math.ceil(image.shape[axis] / zoom)
        first = (image.shape[axis] - length) // 2
        middle = np.take(middle, range(first, first + length), axis=axis)
    large = ndimage.zoom(middle, (zoom, zoom, 1), order=1)
    top, left = ((large.shape[axis] - image.shape[axis]) // 2 for axis in (0, 1))
    return large[top : top + image.shape[0], left : left + image.shape[1]]


def literal_zoom(image: np.ndarray, zoom_stop: float, zoom_step: float) -> np.ndarray:
    x = np.float32(image / 255)
    zooms = np.arange(1, zoom_stop, zoom_step)
    total = sum((literal_clipped_zoom(x, zoom) for zoom in zooms), np.zeros_like(x))
    return np.uint8(np.clip((x + total) / (len(zooms) + 1), 0, 1) * 255)


def literal_motion(image: np.ndarray, angle: float, radius: int, sigma: float) -> np.ndarray:
    """ImageMagick's loop over offsets, unrounded, with the edge pixels repeated."""
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    rows, columns = (np.arange(side) for side in image.shape[:2])
    total = np.zeros(image.shape)
    for step, weight in zip(steps, weights, strict=True):
        down = math.ceil(step * math.sin(math.radians(angle)) - 0.5)
        right = math.ceil(step * math.cos(math.radians(angle)) - 0.5)
        y = np.clip(rows + down, 0, len(rows) - 1)
        x = np.clip(columns + right, 0, len(columns) - 1)
        total += weight * image[y[:, None], x]
    return total


LITERAL: dict[str, Callable[..., np.ndarray]] = {
    "defocus_blur": literal_defocus,
    "gaussian_blur": literal_gaussian,
    "zoom_blur": literal_zoom,
}


@pytest.mark.parametrize(("preset", "sizes"), [("cifar", SIZES), ("imagenet", [*SIZES, (96, 80)])])
@pytest.mark.parametrize("name", sorted(LITERAL))
def test_deterministic_ones_follow_the_definition(
    name: str, preset: str, sizes: list[tuple[int, int]]
) -> None:
    for size in sizes:
        for severity in SEVERITIES:
            want = LITERAL[name](photo(*size), **constants(name, severity, preset=preset))
            assert_agree(corrupt(photo(*size)[None], name, severity, preset=preset)[0], want)


@pytest.mark.parametrize("angle", [-45.0, -17.3, 0.0, 8.9, 45.0, 90.0, -135.0])
@pytest.mark.parametrize("size", SIZES)
def test_motion_follows_the_definition_at_a_given_angle(
    angle: float, size: tuple[int, int]
) -> None:
    batch = torch.from_numpy(photo(*size)).movedim(-1, 0)[None]
    for preset in ("cifar", "imagenet"):
        for severity in SEVERITIES:
            settings = constants("motion_blur", severity, preset=preset)
            settings["angle_degrees"] = (angle, angle)
            rounded = motion_blur(batch, Draws(torch.tensor([1])), **settings)
            got = rounded[0].movedim(0, -1).numpy() - 0.5
            want = literal_motion(photo(*size), angle, settings["radius"], settings["sigma"])
            np.testing.assert_allclose(got, want, atol=2e-3)


def test_motion_is_rounded_as_by_imagemagick() -> None:
    # A step from 0 to 255: on its left, the weights ahead of each pixel add up to levels.
    image = np.zeros((1, 8, 64, 3), dtype=np.uint8)
    image[:, :, 32:] = 255
    out = motion_blur(
        torch.from_numpy(image).movedim(-1, 1), Draws(torch.tensor([1])),
        radius=10, sigma=3.0, angle_degrees=(0.0, 0.0),
    ).floor()[0, 0, 0].numpy()  # fmt: skip
    weights = np.exp(-(np.arange(21) ** 2) / 18)
    reached = np.array([weights[max(0, 32 - x) :].sum() for x in range(64)]) / weights.sum()
    np.testing.assert_array_equal(out, np.round(255 * reached))


def test_angles_are_spread_over_the_published_range() -> None:
    dot = torch.zeros(400, 1, 65, 65, dtype=torch.uint8)
    dot[:, :, 32, 32] = 255
    keys = torch.arange(400) * 7919
    out = motion_blur(dot, Draws(keys), radius=10, sigma=8.0, angle_degrees=(-45, 45)) - 0.5
    y, x = torch.meshgrid(torch.arange(65.0) - 32, torch.arange(65.0) - 32, indexing="ij")
    angles = torch.rad2deg(
        torch.atan2(-(out * y).sum(dim=(1, 2, 3)), -(out * x).sum(dim=(1, 2, 3)))
    )
    assert -46 < angles.min() < -43
    assert 43 < angles.max() < 46
    assert abs(angles.mean()) < 4 * 26 / 20
    assert angles.std() == pytest.approx(90 / 12**0.5, rel=0.1)


# --- the frame -----------------------------------------------------------------------------------


# As published, disks of radius 8 and 10 weigh more than 1: their rims are mirrored at the grid's.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "defocus_blur"])
def test_a_flat_image_stays(name: str) -> None:
    for level in (0, 77, 255):
        flat = np.full((1, 40, 30, 3), level, dtype=np.uint8)
        for severity in SEVERITIES:
            np.testing.assert_array_equal(corrupt(flat, name, severity, preset="imagenet"), flat)
