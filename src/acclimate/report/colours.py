"""Colours that differ for the colour-blind too, on light and on dark paper."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["CHANGE", "ERROR", "SERIES", "Scale", "css", "shade"]

Scale = tuple[str, ...]

ERROR: Scale = ("#fde725", "#7ad151", "#22a884", "#2a788e", "#414487", "#440154")
"""Viridis from the good end (yellow) to the bad (purple)."""

CHANGE: Scale = ("#542788", "#998ec3", "#f2f0ea", "#f5cf4d", "#d99a00")
"""Worse (purple), as before, better (yellow)."""

SERIES: Scale = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9")
"""For lines and dots, by Okabe and Ito."""


def shade(values: ArrayLike, scale: Scale) -> NDArray[np.uint8]:
    """Values from 0 to 1 as (..., 3) colours; what lies outside takes the end's, nan is grey.

    >>> shade([0.0, 1.0, 7.0, np.nan], ("#000000", "#ff8000")).tolist()
    [[0, 0, 0], [255, 128, 0], [255, 128, 0], [128, 128, 128]]
    """
    v = np.asarray(values, dtype=float)
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in scale])
    places = np.linspace(0, 1, len(stops))
    filled = np.where(np.isnan(v), 0.0, v)
    mixed = np.stack([np.interp(filled, places, stops[:, i]) for i in range(3)], axis=-1)
    mixed[np.isnan(v)] = 128
    return np.asarray(np.rint(mixed), dtype=np.uint8)


def css(colour: NDArray[np.uint8]) -> str:
    """One colour as CSS writes it.

    >>> css(shade(1.0, ("#000000", "#ff8000")))
    '#ff8000'
    """
    return "#" + "".join(f"{int(part):02x}" for part in colour)
