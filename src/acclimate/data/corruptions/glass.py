"""Frosted glass: every pixel taken from a little beside its place, between two slight blurs.

The published loop goes through the pixels backwards and means to swap each with a near one. Its
two sides are views of one array, though, so that the second assignment copies back what the first
has just written: a pixel takes over the other's colour, and the other keeps it. The benchmarks
were made that way, and so it is here.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional

from acclimate.data.corruptions._draws import LEVELS, Draws
from acclimate.data.corruptions._filters import gaussian
from acclimate.data.corruptions._registry import corruption

__all__ = ["glass_blur", "taken_backwards"]

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
    levels = images.to(torch.float32, memory_format=torch.contiguous_format)
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
    at once, twice as far at each look, so that a handful of looks replaces the loop.

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
    return functional.pad(moves, (*around, *around)).flatten(1)


@functools.lru_cache(maxsize=32)
def _steps(max_delta: int, width: int, device: torch.device) -> Tensor:
    reach = torch.arange(-max_delta, max_delta, device=device)
    return (reach[:, None] * width + reach).flatten()
