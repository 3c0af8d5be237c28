"""Spatter: drops of water or splashes of mud on the lens."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from acclimate.data.corruptions._draws import Draws
from acclimate.data.corruptions._edges import canny, chamfer_distance, equalize
from acclimate.data.corruptions._filters import gaussian, pad
from acclimate.data.corruptions._registry import corruption

__all__ = ["spatter"]

_WATER = (175, 238, 238)  # pale turquoise
_MUD = (63, 42, 20)
_DEEPEST = 20  # pixels from the rim at which a drop, and what is between drops, counts as flat


@corruption(random=True, colour=True)
def spatter(
    images: Tensor,
    draws: Draws,
    *,
    mean: float,
    std: float,
    sigma: float,
    threshold: float,
    intensity_or_mud_sigma: float,
    mud: float,
) -> Tensor:
    """Splash liquid on the lens wherever smoothed noise rises above ``threshold``.

    Water brightens the picture by up to ``intensity_or_mud_sigma``, in relief as if lit from one
    side; mud covers it, but for the rim of a splash, as wide as ``intensity_or_mud_sigma``.
    """
    noise = draws.normal(1, *images.shape[-2:])
    liquid = gaussian(noise, sigma, edge="repeat").mul_(std).add_(mean)
    levels = images.to(torch.float32, memory_format=torch.contiguous_format)
    if mud:
        cover = gaussian(
            (liquid > threshold).to(torch.float32), intensity_or_mud_sigma, edge="repeat"
        )
        cover.masked_fill_(cover < 0.8, 0)
        return torch.lerp(levels, _colour(_MUD, images.device), cover)
    # As in the published code, a byte wraps around beyond full scale. Few layers rise that high.
    depth = (liquid * 255).to(torch.int16).bitwise_and_(255).masked_fill_(liquid < threshold, 0)
    shine = _relief(depth[:, 0])[:, None].mul_(depth)
    # A picture without a drop on it is left as it is.
    brightest = shine.amax(dim=(2, 3), keepdim=True).clamp_(min=1)
    shine *= intensity_or_mud_sigma / brightest
    return levels.addcmul_(shine, _colour(_WATER, images.device))


def _relief(depth: Tensor) -> Tensor:
    """Light and shade of the drops, 0 to 255, by how far each pixel is from a rim."""
    edges = canny(depth, low=50, high=150)
    distance = chamfer_distance(edges, limit=_DEEPEST)
    rounded = torch.div(_box_sum(distance), 9 * 10_000).to(torch.int64)
    slope = _embossed(equalize(rounded, count=_DEEPEST + 1))
    return _box_sum(slope).div_(9).round_()


def _box_sum(layers: Tensor) -> Tensor:
    around = pad(layers, 1, 1, edge="mirror")
    rows = around[:, :-2] + around[:, 1:-1]
    rows += around[:, 2:]
    total = rows[..., :-2] + rows[..., 1:-1]
    total += rows[..., 2:]
    return total


def _embossed(layers: Tensor) -> Tensor:
    """Correlate with ((-2, -1, 0), (-1, 1, 1), (0, 1, 2)) and clip to 0 to 255."""
    around = pad(layers, 1, 1, edge="mirror")
    total = layers + 2 * (around[:, 2:, 2:] - around[:, :-2, :-2])
    total += around[:, 2:, 1:-1]
    total += around[:, 1:-1, 2:]
    total -= around[:, :-2, 1:-1]
    total -= around[:, 1:-1, :-2]
    return total.clamp_(0, 255)


@functools.lru_cache(maxsize=16)
def _colour(rgb: tuple[int, int, int], device: torch.device) -> Tensor:
    return torch.tensor(rgb, dtype=torch.float32, device=device)[:, None, None]
