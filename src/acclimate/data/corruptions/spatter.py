"""Spatter: drops of water or splashes of mud on the lens."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional as F

from acclimate.data.corruptions.corrupt import corruption
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import gaussian, pad, to_float

__all__ = ["canny", "chamfer_distance", "equalize", "spatter"]

# OpenCV's tangent of 22.5°, a whole number of 2**-15; that of 67.5° is 2 more.
_TANGENT = 13573 / 2**15

# Rounds in which a strong edge grows by a pixel along a weak one. A longer weak tail would be cut;
# the longest met with in thousands of layers took ten.
_ROUNDS = 12

# The steps of OpenCV's 5 × 5 mask (Borgefors 1986) and their lengths: 1 along an axis, 1.4 along a
# diagonal, 2.1969 for a knight's move. The first two are small whole numbers of fifths.
_FIFTHS = (((0, 1), 5), ((1, 0), 5), ((1, 1), 7), ((1, -1), 7))
_KNIGHTS = tuple((step, 21_969) for step in ((1, 2), (2, 1), (1, -2), (2, -1)))


def canny(layers: Tensor, *, low: int, high: int) -> Tensor:
    """Where the edges of int16 layers with values 0 to 255 are, by Canny's method.

    An edge is a ridge of the Sobel gradient (|dx| + |dy|) that rises above ``low`` and is
    connected to one above ``high``.
    """
    around = pad(layers, 1, 1, edge="repeat")
    smooth = around[:, :-2] + around[:, 2:]
    smooth += 2 * around[:, 1:-1]
    across = around[:, 2:] - around[:, :-2]
    dx = smooth[..., 2:] - smooth[..., :-2]
    dy = across[..., :-2] + across[..., 2:]
    dy += 2 * across[..., 1:-1]
    strength = dx.abs() + dy.abs()
    weak = _ridges(strength, dx, dy).bitwise_and_(low - strength)
    strong = weak & (high - strength)
    return _grown(strong < 0, weak < 0)


def chamfer_distance(edges: Tensor, *, limit: int) -> Tensor:
    """Distance to the nearest edge, at most ``limit`` (itself at most 32), in units of 1e-4 px.

    Ways are made of the steps of OpenCV's 5 × 5 mask, 2 % off the straight way at most. Any order
    of the steps leads to the same place, so that each kind can be done with in one go. Only the
    knight's moves need fine numbers; the others are done with in bytes.
    """
    count, height, width = edges.shape
    # Laid out as one long line, a step is an offset. Rows and images are as far apart as
    # distances go, so that no way leads from one to the next; beyond the rim no edge is nearer.
    pitch = width + limit
    field = torch.full(
        (count, height + limit, pitch), 5 * limit, dtype=torch.uint8, device=edges.device
    )
    field[:, :height, :width].masked_fill_(edges, 0)
    _spread(field.view(-1), _FIFTHS, pitch, limit=5 * limit)
    finer = field.to(torch.float32).mul_(2_000)
    _spread(finer.view(-1), _KNIGHTS, pitch, limit=10_000 * limit)
    return finer[:, :height, :width]


def equalize(levels: Tensor, *, count: int) -> Tensor:
    """Spread int64 levels from 0 to ``count`` - 1 over 0 to 255 by how frequent they are.

    A layer of a single level is unchanged. Returns whole numbers in float32.
    """
    flat = levels.flatten(1)
    ones = torch.ones_like(flat, dtype=torch.int32)
    histogram = torch.zeros(len(flat), count, dtype=torch.int32, device=levels.device)
    histogram.scatter_add_(1, flat, ones)
    up_to = histogram.cumsum(1)
    lowest = up_to.masked_fill(up_to == 0, flat.shape[1]).amin(1, keepdim=True)
    rest = flat.shape[1] - lowest
    # Not 255 / rest: that is the product with a reciprocal, which rounds halves another way.
    scale = torch.full_like(rest, 255, dtype=torch.float32).div_(rest)
    table = (up_to - lowest).clamp_(min=0).to(torch.float32).mul_(scale).round_()
    as_it_is = torch.arange(count, dtype=torch.float32, device=levels.device)
    return torch.where(rest == 0, as_it_is, table).gather(1, flat).view(levels.shape)


def _ridges(strength: Tensor, dx: Tensor, dy: Tensor) -> Tensor:
    """Negative where the strength is greatest along the gradient, to one of four directions.

    A negative number stands for true: a difference for a comparison, of which & and | see the
    sign. On a CPU this takes a fraction of the time that comparisons take.
    """
    height, width = strength.shape[1:]
    around = F.pad(strength, (1, 1, 1, 1))

    def above(down: int, right: int, least: Tensor) -> Tensor:
        there = around[:, 1 + down : 1 + down + height, 1 + right : 1 + right + width]
        return there - least

    leftward = dx ^ dy  # negative where their signs differ: down goes with left
    dx, dy = dx.abs(), dy.abs()
    tangent = (dx * _TANGENT).to(torch.int16)
    flat = (dy - tangent).sub_(1)
    steep = tangent.sub_(dy).add_(dx, alpha=2)
    or_equal = strength + 1
    horizontal = above(0, -1, strength).bitwise_and_(above(0, 1, or_equal))
    vertical = above(-1, 0, strength).bitwise_and_(above(1, 0, or_equal))
    to_the_right = above(-1, -1, strength).bitwise_and_(above(1, 1, strength))
    to_the_left = above(-1, 1, strength).bitwise_and_(above(1, -1, strength))
    diagonal = _choose(leftward, to_the_left, to_the_right)
    return _choose(flat, horizontal, _choose(steep, vertical, diagonal))


def _choose(signs: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The signs of ``first`` where ``signs`` is negative, else of ``second``. Overwrites both."""
    return first.bitwise_and_(signs).bitwise_or_(second.bitwise_and_(~signs))


def _spread(
    line: Tensor, steps: tuple[tuple[tuple[int, int], int], ...], pitch: int, *, limit: int
) -> None:
    """Lower every distance to what any number of steps from elsewhere would make it."""
    longer = torch.empty_like(line)
    for (down, right), cost in steps:
        covered, reach = 0, limit // cost
        while covered < reach:  # doubling the stride
            stride = min(covered + 1, reach - covered)
            covered += stride
            offset = stride * (down * pitch + right)
            torch.add(line, stride * cost, out=longer)
            after, before = line[offset:], line[:-offset]
            torch.minimum(after, longer[:-offset], out=after)
            torch.minimum(before, longer[offset:], out=before)


def _grown(seeds: Tensor, area: Tensor) -> Tensor:
    """The seeds, spread over the parts of ``area`` that they touch, at corners too."""
    grown = seeds
    for _ in range(_ROUNDS):
        wider = grown.clone()
        wider[:, 1:] |= grown[:, :-1]
        wider[:, :-1] |= grown[:, 1:]
        further = wider.clone()
        further[..., 1:] |= wider[..., :-1]
        further[..., :-1] |= wider[..., 1:]
        further &= area
        # Two rounds are mostly enough. A GPU would have to wait for the result.
        if further.device.type == "cpu" and torch.equal(further, grown):
            break
        grown = further
    return grown


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

    Water brightens the image by up to ``intensity_or_mud_sigma``, in relief as if lit from one
    side; mud covers it, but for the rim of a splash, as wide as ``intensity_or_mud_sigma``.
    """
    noise = draws.normal(1, *images.shape[-2:])
    liquid = gaussian(noise, sigma, edge="repeat").mul_(std).add_(mean)
    levels = to_float(images)
    if mud:
        cover = gaussian(
            (liquid > threshold).to(torch.float32), intensity_or_mud_sigma, edge="repeat"
        )
        cover.masked_fill_(cover < 0.8, 0)
        return torch.lerp(levels, _colour(_MUD, images.device), cover)
    # As in the published code, a byte wraps around beyond full scale. Few layers rise that high.
    depth = (liquid * 255).to(torch.int16).bitwise_and_(255).masked_fill_(liquid < threshold, 0)
    shine = _relief(depth[:, 0])[:, None].mul_(depth)
    # An image without a drop on it is unchanged.
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
