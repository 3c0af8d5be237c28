"""Snow: flakes in flight before a picture that turns pale."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from acclimate.data.corruptions._draws import Draws
from acclimate.data.corruptions._filters import convolve
from acclimate.data.corruptions._motion import motion_kernels
from acclimate.data.corruptions._pixels import luma
from acclimate.data.corruptions._registry import corruption

__all__ = ["snow"]


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
    """Whiten the picture and let streaks of flakes fall before it, and once more upside down.

    Flakes are the peaks of magnified noise, drawn out at an angle of their own in every picture.
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
    levels = images.to(torch.float32, memory_format=torch.contiguous_format)
    pale = torch.maximum(levels, luma(levels).mul(1.5).add_(127.5))
    return torch.lerp(pale, levels, image_weight).add_(fall)


def _magnified(layers: Tensor, zoom: float, size: tuple[int, int]) -> Tensor:
    """The layers enlarged ``zoom`` times, corners on corners, and cut to ``size`` in the middle."""
    enlarged = (round(layers.shape[-2] * zoom), round(layers.shape[-1] * zoom))
    top, left = ((big - side) // 2 for big, side in zip(enlarged, size, strict=True))
    whole = F.interpolate(layers, enlarged, mode="bilinear", align_corners=True)
    return whole[..., top : top + size[0], left : left + size[1]]
