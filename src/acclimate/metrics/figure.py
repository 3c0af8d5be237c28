"""A number with what it takes to read it: how many images, and how certain.

Intervals are percentile bootstraps: how far a figure moves when the images are drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = ["Figure", "binomial_errors", "bootstrap_interval", "figure_of", "wilson_interval"]

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured number.

    Attributes:
        value: the number, in ``unit``.
        images: how many labelled images it was computed on; None if nobody said.
        low: lower end of the confidence interval; None unless one was asked for.
        high: upper end.
        level: how often such an interval holds the true number.
        unit: "%", or "" for a share of one.

    >>> print(Figure(value=12.34, images=10_000, low=11.7, high=12.9))
    12.3 % (10,000 images, 95 % CI 11.7 to 12.9)
    >>> float(Figure(value=12.34, images=10_000))
    12.34
    """

    value: float
    images: int | None
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    unit: str = "%"

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        # A share of one needs two digits more than a percentage to say as much.
        digits = 1 if self.unit == "%" else 3
        number = f"{self.value:.{digits}f} {self.unit}".rstrip()
        if self.images is None:
            count = "number of images not stated"
        else:
            count = f"{self.images:,} image{'' if self.images == 1 else 's'}"
        if self.low is None or self.high is None:
            return f"{number} ({count})"
        interval = f"{self.low:.{digits}f} to {self.high:.{digits}f}"
        return f"{number} ({count}, {100 * self.level:g} % CI {interval})"


def figure_of(
    value: float,
    *,
    images: int | None,
    samples: Callable[[np.random.Generator], Array],
    interval: float | None,
    draws: int,
    seed: int,
    unit: str = "%",
) -> Figure:
    """A number and, if a level is given, the interval of its ``draws`` samples."""
    if interval is None:
        return Figure(value=value, images=images, unit=unit)
    _check_draws(level=interval, draws=draws)
    low, high = _middle(samples(np.random.default_rng(seed)), level=interval)
    return Figure(value=value, images=images, low=low, high=high, level=interval, unit=unit)


def binomial_errors(
    wrong: int, total: int, *, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Errors in percent of ``draws`` resamples of ``total`` images, ``wrong`` of them wrong.

    Drawing n images with replacement, of which a share p is wrong, makes a binomial number of
    wrong ones: the bootstrap itself, without the images.
    """
    return 100 * rng.binomial(total, wrong / total, size=draws) / total


def wilson_interval(wrong: int, total: int, *, level: float = 0.95) -> tuple[float, float]:
    """Where the share of wrong ones lies, in percent, if so many of ``total`` are (Wilson 1927).

    Unlike a bootstrap it has a width where none or all are wrong.

    >>> [round(end, 1) for end in wilson_interval(10, 100)]
    [5.5, 17.4]
    >>> [round(end, 1) for end in wilson_interval(0, 100)]
    [0.0, 3.7]
    """
    if not 0 <= wrong <= total or total == 0:
        raise AcclimateError(f"expected 0 <= wrong <= total > 0, got {wrong} of {total}")
    _check_draws(level=level, draws=1)
    z, p = NormalDist().inv_cdf((1 + level) / 2), wrong / total
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + (z / (2 * total)) ** 2)
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def bootstrap_interval(
    values: Tensor | ArrayLike,
    statistic: Callable[[Array], float] | None = None,
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap of ``statistic`` (the mean by default) over the rows of ``values``.

    A row is what is drawn, so that what belongs together stays together: with a row per image and
    a column per corruption, an image is drawn with all its corruptions.

    >>> low, high = bootstrap_interval([0, 0, 1, 1] * 100)
    >>> low < 0.5 < high
    True
    >>> bootstrap_interval([3.0, 3.0, 3.0])
    (3.0, 3.0)
    """
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        # NumPy has no bfloat16.
        values = values.double() if values.is_floating_point() else values
    rows = np.asarray(values)
    if rows.ndim == 0 or len(rows) == 0:
        raise AcclimateError("expected at least one value to draw from, got none")
    if rows.dtype.kind not in "biuf":
        raise AcclimateError(f"expected numbers to draw from, got values of type {rows.dtype}")
    if rows.dtype.kind == "f" and np.isnan(rows).any():
        raise AcclimateError("expected numbers to draw from, got NaN; leave those rows out")
    _check_draws(level=level, draws=draws)
    rng = np.random.default_rng(seed)
    measure = statistic or np.mean
    samples = [float(measure(rows[rng.integers(len(rows), size=len(rows))])) for _ in range(draws)]
    return _middle(np.array(samples), level=level)


def _middle(samples: Array, *, level: float) -> tuple[float, float]:
    # Rounded, or 1 - 0.9 would ask for the percentile 4.999999999999999.
    tail = round(50 * (1 - level), 9)
    low, high = np.percentile(samples, [tail, 100 - tail])
    return float(low), float(high)


def _check_draws(*, level: float, draws: int) -> None:
    if not 0 < level < 1:
        hint = f"; did you mean {level / 100:g}?" if 1 < level < 100 else ""
        raise AcclimateError(f"expected a confidence level between 0 and 1, got {level!r}{hint}")
    if draws < 1:
        raise AcclimateError(f"expected draws >= 1, got {draws!r}")
