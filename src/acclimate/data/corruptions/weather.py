"""Weather before the lens: fog and snow."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from acclimate.data.corruptions.corrupt import corruption
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import convolve, luma, motion_kernels, to_float

__all__ = ["fog", "plasma", "snow"]


@corruption(random=True, many=True)
def fog(images: Tensor, draws: Draws, *, amount: float, wibble_decay: float) -> Tensor:
    """Add a plasma fractal, then darken so that the brightest point can stay in range."""
    height, width = images.shape[-2:]
    # The published maps, 256 for 224 px and 32 for 32 px, are the powers of two that cover.
    side = 1 << (max(height, width) - 1).bit_length()
    haze = plasma(side, draws, decay=wibble_decay)[:, None, :height, :width]
    levels = to_float(images)
    peak = levels.amax(dim=(1, 2, 3), keepdim=True)
    return levels.add_(haze.mul(255 * amount)).mul_(peak / (peak + 255 * amount))


def plasma(side: int, draws: Draws, *, decay: float) -> Tensor:
    """Clouds in [0, 1], N × side × side, periodic at their edges, by the diamond-square algorithm.

    Points a ``step`` apart are known; the midpoints of the squares and then of the diamonds
    between them become the mean of their four neighbours plus a wibble, which shrinks by
    ``decay`` squared as the step halves. ``side`` must be a power of two.
    """
    # All draws at once: every wibble has a place of its own, the corner's is not used.
    offsets = draws.uniform(side, side).mul_(2).sub_(1)
    heights = torch.zeros_like(offsets)
    wibble = 100.0
    step = side
    while step >= 2:
        half = step // 2
        # Slices are views: filling one of these four interleaved grids fills the map.
        corners = heights[:, ::step, ::step]
        centres = heights[:, half::step, half::step]
        rows = corners + corners.roll(-1, dims=1)
        columns = corners + corners.roll(-1, dims=2)
        # The wibble scales the draw twice, as in the published code.
        settle = functools.partial(_settle, heights, offsets, step=step, scale=wibble**2)
        settle((half, half), rows + rows.roll(-1, dims=2))
        settle((0, half), columns + centres + centres.roll(1, dims=1))
        settle((half, 0), rows + centres + centres.roll(1, dims=2))
        step = half
        wibble /= decay
    heights -= heights.amin(dim=(1, 2), keepdim=True)
    heights /= heights.amax(dim=(1, 2), keepdim=True)
    return heights


def _settle(
    heights: Tensor,
    offsets: Tensor,
    first: tuple[int, int],
    neighbours: Tensor,
    *,
    step: int,
    scale: float,
) -> None:
    """Set one of the four interleaved grids to the mean of its four neighbours plus a wibble."""
    grid = (slice(None), slice(first[0], None, step), slice(first[1], None, step))
    heights[grid] = neighbours.mul_(0.25).add_(offsets[grid] * scale)


@corruption(random=True)
def snow(
    images: Tensor,
    draws: Draws,
    *,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    motion_radius: float,
    motion_sigma: float,
    image_weight: float,
    angle_degrees: tuple[float, float],
) -> Tensor:
    """Whiten the image and let streaks of flakes fall before it, and once more upside down.

    Flakes are the peaks of magnified noise, drawn out at an angle of their own in every image.
    """
    height, width = images.shape[-2:]
    small = (math.ceil(height / zoom), math.ceil(width / zoom))
    flakes = _magnified(draws.normal(1, *small), zoom, (height, width)).mul_(std).add_(mean)
    flakes.masked_fill_(flakes < threshold, 0).clamp_(0, 1).mul_(255).floor_()
    low, high = angle_degrees
    angles = draws.uniform(1)[:, 0].mul_(high - low).add_(low)
    streaks = motion_kernels(angles, radius=motion_radius, sigma=motion_sigma)
    fall = convolve(flakes, streaks, edge="repeat").round_()
    fall = fall + fall.flip(-2, -1)
    levels = to_float(images)
    pale = torch.maximum(levels, luma(levels).mul(1.5).add_(127.5))
    return torch.lerp(pale, levels, image_weight).add_(fall)


def _magnified(layers: Tensor, zoom: float, size: tuple[int, int]) -> Tensor:
    """The layers enlarged ``zoom`` times, corners on corners, and cut to ``size`` in the middle."""
    enlarged = (round(layers.shape[-2] * zoom), round(layers.shape[-1] * zoom))
    top, left = ((big - side) // 2 for big, side in zip(enlarged, size, strict=True))
    whole = F.interpolate(layers, enlarged, mode="bilinear", align_corners=True)
    return whole[..., top : top + size[0], left : left + size[1]]
