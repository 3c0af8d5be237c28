"""Weather before the lens."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from acclimate.data.corruptions._pixels import Pixels, quantize
from acclimate.data.corruptions._registry import corruption

__all__ = ["fog", "plasma"]


@corruption(random=True)
def fog(image: Pixels, rng: Generator, *, amount: float, wibble_decay: float) -> Pixels:
    """Add a plasma fractal, then darken so that the brightest point can stay in range."""
    height, width = image.shape[:2]
    # The published maps, 256 for 224 px and 32 for 32 px, are the powers of two that cover.
    side = 1 << (max(height, width) - 1).bit_length()
    haze = plasma(side, rng, decay=wibble_decay)[:height, :width, None]
    unit = image / 255
    peak = unit.max()
    return quantize((unit + amount * haze) * peak / (peak + amount) * 255)


def plasma(side: int, rng: Generator, *, decay: float) -> NDArray[np.float64]:
    """A cloud in [0, 1], periodic at its edges, by the diamond-square algorithm.

    Points a ``step`` apart are known; the midpoints of the squares and then of the diamonds
    between them become the mean of their four neighbours plus a wibble, which shrinks by
    ``decay`` squared as the step halves. ``side`` must be a power of two.

    >>> cloud = plasma(8, np.random.default_rng(0), decay=2.0)
    >>> cloud.shape, float(cloud.min()), float(cloud.max())
    ((8, 8), 0.0, 1.0)
    """
    heights = np.zeros((side, side))
    wibble = 100.0
    step = side
    while step >= 2:
        half = step // 2
        # Slices are views: filling one of these four interleaved grids fills the map.
        corners, centres = heights[::step, ::step], heights[half::step, half::step]
        across, down = heights[::step, half::step], heights[half::step, ::step]
        rows = corners + np.roll(corners, -1, axis=0)
        columns = corners + np.roll(corners, -1, axis=1)
        centres[:] = _wibbled(rows + np.roll(rows, -1, axis=1), rng, wibble)
        across[:] = _wibbled(columns + centres + np.roll(centres, 1, axis=0), rng, wibble)
        down[:] = _wibbled(rows + centres + np.roll(centres, 1, axis=1), rng, wibble)
        step = half
        wibble /= decay
    heights -= heights.min()
    heights /= heights.max()
    return heights


def _wibbled(total: NDArray[np.float64], rng: Generator, wibble: float) -> NDArray[np.float64]:
    # The wibble scales the draw twice, as in the published code.
    return total / 4 + wibble * rng.uniform(-wibble, wibble, total.shape)
