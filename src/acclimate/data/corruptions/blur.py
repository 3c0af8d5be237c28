"""Blurs of the lens: Gaussian, out of focus, in motion, zooming, through glass."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from acclimate.data.corruptions.corrupt import corruption
from acclimate.data.corruptions.draws import LEVELS, Draws
from acclimate.data.corruptions.filters import convolve, gaussian, motion_kernels, to_float

__all__ = [
    "defocus_blur",
    "gaussian_blur",
    "glass_blur",
    "motion_blur",
    "taken_backwards",
    "zoom_blur",
]


@corruption()
def gaussian_blur(images: Tensor, *, sigma: float) -> Tensor:
    """Blur by a Gaussian cut off at four sigma, with the edge pixels repeated outwards."""
    return gaussian(to_float(images), sigma, edge="repeat")


@corruption()
def defocus_blur(images: Tensor, *, radius: float, alias_blur: float) -> Tensor:
    """Spread every point over a disk, as a lens out of focus does."""
    return convolve(to_float(images), _disk(radius, alias_blur, images.device), edge="mirror")


@corruption(random=True)
def motion_blur(
    images: Tensor, draws: Draws, *, radius: float, sigma: float, angle_degrees: tuple[float, float]
) -> Tensor:
    """Trail every point along a straight line, at an angle drawn for the image."""
    low, high = angle_degrees
    angles = draws.uniform(1)[:, 0] * (high - low) + low
    kernels = motion_kernels(angles, radius=radius, sigma=sigma)
    # ImageMagick, which the benchmarks call for this one, rounds where numpy truncates.
    return convolve(to_float(images), kernels, edge="repeat").add_(0.5)


@corruption()
def zoom_blur(images: Tensor, *, zoom_stop: float, zoom_step: float) -> Tensor:
    """Average the image with enlargements of its middle, from 1 up to ``zoom_stop``."""
    levels = to_float(images)
    zooms = np.arange(1, zoom_stop, zoom_step).tolist()
    # Kept transposed, so that both axes are enlarged as rows: whole rows are quick to pick out.
    total = levels.transpose(-2, -1).contiguous()
    total *= 2  # once unchanged, once as the first enlargement
    for zoom in zooms[1:]:
        taller = _enlarge_rows(levels, zoom)
        total += _enlarge_rows(taller.transpose(-2, -1).contiguous(), zoom)
    return total.div_(len(zooms) + 1).transpose(-2, -1)


@functools.lru_cache(maxsize=32)
def _disk(radius: float, alias_blur: float, device: torch.device) -> Tensor:
    """Equal weights in a circle, its rim softened by a Gaussian of 3×3 or 5×5."""
    reach, soften = (8, 1) if radius <= 8 else (int(radius), 2)
    offsets = torch.arange(-reach, reach + 1)
    inside = (offsets**2 + offsets[:, None] ** 2 <= radius**2).to(torch.float32)
    disk = inside / inside.sum()
    # Mirrored at the rim of the published grid, which the disks of radius 8 and 10 touch: these
    # weigh a little more than 1.
    disk = gaussian(disk, alias_blur, edge="mirror", truncate=soften / alias_blur)
    # The less of a margin, the less to pad.
    bare = int((disk.amax(dim=0) < 1e-9).sum()) // 2
    return disk[bare : len(disk) - bare, bare : len(disk) - bare].to(device)


def _enlarge_rows(images: Tensor, zoom: float) -> Tensor:
    above, share = _row_taps(images.shape[-2], zoom, images.device)
    below = images.index_select(-2, above + 1)
    return images.index_select(-2, above).lerp_(below, share)


@functools.lru_cache(maxsize=256)
def _row_taps(side: int, zoom: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """For each row of the enlarged middle, the row above it and how far it lies below that one.

    As published: the enlarged rows span the middle from its first to its last pixel, and where
    rounding makes them one too many, the last is dropped.
    """
    length = int(np.ceil(side / zoom))
    spacing = (length - 1) / (round(length * zoom) - 1)
    rows = (side - length) // 2 + np.arange(side) * spacing
    above = np.minimum(rows.astype(np.int64), side - 2)
    share = torch.from_numpy((rows - above)[:, None]).to(device, torch.float32)
    return torch.from_numpy(above).to(device), share


_LEVEL_BITS = LEVELS.bit_length() - 1
# Less than `quantize` adds before it cuts fractions off: a blur of sigma 0.25 may take 0.0003 off a
# level, which then, as published, becomes the level below. Single precision errs by a third of it.
_ROUNDING = 2.0**-13


@corruption(random=True)
def glass_blur(
    images: Tensor, draws: Draws, *, sigma: float, max_delta: int, iterations: int
) -> Tensor:
    """Blur, let every pixel take over a near one's colour ``iterations`` times, blur again."""
    count, channels, height, width = images.shape
    levels = to_float(images)
    soft = _truncated(gaussian(levels, sigma, edge="repeat"))  # through eight bits, as published
    if min(height, width) > 2 * max_delta:
        sources = torch.arange(height * width, device=images.device).expand(count, -1)
        for _ in range(iterations):
            offsets = _drawn_offsets(draws, height, width, max_delta)
            sources = sources.gather(1, taken_backwards(offsets))
        soft = soft.flatten(2).gather(2, sources[:, None].expand(-1, channels, -1))
    return _truncated(gaussian(soft.view(images.shape).to(torch.float32), sigma, edge="repeat"))


def taken_backwards(offsets: Tensor) -> Tensor:
    """Where colours end up coming from when pixels, the last one first, take them over in turn.

    Pixel p takes the colour that pixel p + offsets[:, p] has at that moment: the original one if
    that pixel lies before p, else what that pixel itself has taken. All such chains are followed
    at once, twice as far each time, so that a handful of steps replaces the loop.

    >>> taken_backwards(torch.tensor([[2, 1, 1, 0, -3]]))
    tensor([[3, 3, 3, 3, 1]])
    """
    pixels = torch.arange(offsets.shape[1], device=offsets.device)
    links = offsets.clamp(min=0).add_(pixels)
    while True:
        farther = links.gather(1, links)
        if torch.equal(farther, links):
            break
        links = farther
    return (pixels + offsets).gather(1, links)


def _truncated(values: Tensor) -> Tensor:
    return values.add_(_ROUNDING).clamp_(0, 255).to(torch.uint8)


def _drawn_offsets(draws: Draws, height: int, width: int, max_delta: int) -> Tensor:
    """How far on, counted along the rows, each pixel's new colour lies: N × height·width.

    Nothing is taken by the margin, which the published loop leaves out: one pixel wider at the
    top and left, since the other pixel is drawn from -max_delta to max_delta - 1.
    """
    chosen = draws.levels(height - 2 * max_delta, width - 2 * max_delta)
    steps = _steps(max_delta, width, chosen.device)
    chosen = chosen.mul_(len(steps)) >> _LEVEL_BITS
    moves = steps.index_select(0, chosen.view(-1)).view(chosen.shape)
    around = (max_delta + 1, max_delta - 1)
    return F.pad(moves, (*around, *around)).flatten(1)


@functools.lru_cache(maxsize=32)
def _steps(max_delta: int, width: int, device: torch.device) -> Tensor:
    reach = torch.arange(-max_delta, max_delta, device=device)
    return (reach[:, None] * width + reach).flatten()
