"""Bootstrap confidence intervals: how far a figure moves when the images are drawn anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = ["binomial_errors", "bootstrap_interval", "check_draws", "percentile_interval"]

Array = NDArray[Any]


def bootstrap_interval(
    values: Tensor | ArrayLike,
    statistic: Callable[[Array], float] | None = None,
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap of ``statistic`` (the mean unless told) over the rows of ``values``.

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
    check_draws(level=level, draws=draws)
    rng = np.random.default_rng(seed)
    measure = _mean if statistic is None else statistic
    samples = [float(measure(rows[rng.integers(len(rows), size=len(rows))])) for _ in range(draws)]
    return percentile_interval(np.array(samples), level=level)


def _mean(rows: Array) -> float:
    return float(rows.mean())


def binomial_errors(
    wrong: int, total: int, *, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Errors in percent of ``draws`` resamples of ``total`` images, ``wrong`` of them wrong.

    Drawing n images with replacement, of which a share p is wrong, makes a binomial number of
    wrong ones: the bootstrap itself, without the images.

    >>> binomial_errors(0, 5, draws=2, rng=np.random.default_rng(0))
    array([0., 0.])
    """
    return 100 * rng.binomial(total, wrong / total, size=draws) / total


def percentile_interval(samples: Array, *, level: float) -> tuple[float, float]:
    """The middle ``level`` of the samples.

    >>> percentile_interval(np.arange(101), level=0.9)
    (5.0, 95.0)
    """
    # Rounded, or 1 - 0.9 would ask for the percentile 4.999999999999999.
    tail = round(50 * (1 - level), 9)
    low, high = np.percentile(samples, [tail, 100 - tail])
    return float(low), float(high)


def check_draws(*, level: float, draws: int) -> None:
    """Refuse a confidence level outside (0, 1) and a number of draws below 1."""
    if not 0 < level < 1:
        hint = f"; did you mean {level / 100:g}?" if 1 < level < 100 else ""
        raise AcclimateError(f"expected a confidence level between 0 and 1, got {level!r}{hint}")
    if draws < 1:
        raise AcclimateError(f"expected draws >= 1, got {draws!r}")
