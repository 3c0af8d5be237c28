"""Blurs of the lens: Gaussian, out of focus, in motion, zooming."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from acclimate.data.corruptions._draws import Draws
from acclimate.data.corruptions._filters import convolve, gaussian
from acclimate.data.corruptions._motion import motion_kernels
from acclimate.data.corruptions._registry import corruption

__all__ = ["defocus_blur", "gaussian_blur", "motion_blur", "zoom_blur"]


@corruption()
def gaussian_blur(images: Tensor, *, sigma: float) -> Tensor:
    """Blur by a Gaussian cut off at four sigma, with the edge pixels repeated outwards."""
    return gaussian(_levels(images), sigma, edge="repeat")


@corruption()
def defocus_blur(images: Tensor, *, radius: float, alias_blur: float) -> Tensor:
    """Spread every point over a disk, as a lens out of focus does."""
    return convolve(_levels(images), _disk(radius, alias_blur, images.device), edge="mirror")


@corruption(random=True)
def motion_blur(
    images: Tensor, draws: Draws, *, radius: float, sigma: float, angle_degrees: tuple[float, float]
) -> Tensor:
    """Trail every point along a straight line, at an angle drawn for the picture."""
    low, high = angle_degrees
    angles = draws.uniform(1)[:, 0] * (high - low) + low
    kernels = motion_kernels(angles, radius=radius, sigma=sigma)
    # ImageMagick, which the benchmarks call for this one, rounds where numpy truncates.
    return convolve(_levels(images), kernels, edge="repeat").add_(0.5)


@corruption()
def zoom_blur(images: Tensor, *, zoom_stop: float, zoom_step: float) -> Tensor:
    """Average the picture with enlargements of its middle, from 1 up to ``zoom_stop``."""
    levels = _levels(images)
    zooms = np.arange(1, zoom_stop, zoom_step).tolist()
    # Kept transposed, so that both axes are enlarged as rows: whole rows are quick to pick out.
    total = levels.transpose(-2, -1).contiguous()
    total *= 2  # once as it is, once as the first enlargement
    for zoom in zooms[1:]:
        taller = _enlarge_rows(levels, zoom)
        total += _enlarge_rows(taller.transpose(-2, -1).contiguous(), zoom)
    return total.div_(len(zooms) + 1).transpose(-2, -1)


def _levels(images: Tensor) -> Tensor:
    return images.to(torch.float32, memory_format=torch.contiguous_format)


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
