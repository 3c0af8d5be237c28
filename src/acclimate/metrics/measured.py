"""Errors as people have them: a number, five of them, a figure, or the counts themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from acclimate.errors import AcclimateError
from acclimate.metrics.bootstrap import binomial_errors, check_draws, percentile_interval
from acclimate.metrics.error import ErrorCounts
from acclimate.metrics.figure import Figure

__all__ = ["ErrorLike", "Errors", "Measured", "figure_of", "measure"]

ErrorLike: TypeAlias = float | Figure | ErrorCounts
Errors: TypeAlias = Mapping[str, ErrorLike | Sequence[ErrorLike]]

SEVERITIES = 5


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The error on one shift: the mean of its parts (severities), each with what is known of it."""

    name: str
    parts: tuple[float, ...]
    images: int | None
    counts: tuple[tuple[int, int], ...] | None

    @property
    def error(self) -> float:
        """In percent."""
        return sum(self.parts) / len(self.parts)

    def resample(self, *, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """The error in ``draws`` draws of the images of each part."""
        if self.counts is None:
            raise AcclimateError(
                f"expected counts for an interval, got only the error of {self.name!r}; give "
                "ErrorCounts, which know how many images were wrong"
            )
        drawn = [binomial_errors(w, n, draws=draws, rng=rng) for w, n in self.counts]
        return np.asarray(np.mean(drawn, axis=0), dtype=np.float64)


def measure(
    name: str, given: ErrorLike | Sequence[ErrorLike], *, severities: int | None = None
) -> Measured:
    """Read what was given for one shift; ``severities`` is how many a sequence must hold.

    >>> measure("fog", [10.0, 20.0, 30.0, 40.0, 50.0], severities=5).error
    30.0
    """
    # Numbers of NumPy and PyTorch too; a tensor without dimensions is one.
    if isinstance(given, Figure | ErrorCounts | Real) or getattr(given, "ndim", None) == 0:
        cells: list[ErrorLike] = [cast(ErrorLike, given)]
    else:
        cells = _cells(name, given)
        if severities == 1 < len(cells):
            raise AcclimateError(f"expected one error for {name!r}, got {len(cells)}")
        if severities is not None and len(cells) != severities:
            raise AcclimateError(
                f"expected the error of {name!r} at {severities} severities, got {len(cells)}; "
                "give all of them or their mean, or say partial=True"
            )
    figures = [cell.error() if isinstance(cell, ErrorCounts) else cell for cell in cells]
    known = [figure.images if isinstance(figure, Figure) else None for figure in figures]
    total = [n for n in known if n is not None]
    counts = [cell.counts() for cell in cells if isinstance(cell, ErrorCounts)]
    return Measured(
        name=name,
        parts=tuple(_percent(name, figure) for figure in figures),
        images=sum(total) if len(total) == len(known) else None,
        counts=tuple(counts) if len(counts) == len(cells) else None,
    )


def _cells(name: str, given: object) -> list[ErrorLike]:
    # Arrays and one-dimensional tensors too: whatever can be walked through.
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise AcclimateError(
            f"expected an error in percent for {name!r}, or one per severity, got {given!r}"
        )
    cells = list(given)
    if not cells:
        raise AcclimateError(f"expected an error in percent for {name!r}, got an empty sequence")
    return cells


def _percent(name: str, error: float | Figure) -> float:
    try:
        value = float(error)
    except (TypeError, ValueError):
        raise AcclimateError(f"expected an error in percent for {name!r}, got {error!r}") from None
    if not math.isfinite(value) or not 0 <= value <= 100:
        raise AcclimateError(
            f"expected an error between 0 and 100 percent for {name!r}, got {value!r}"
        )
    return value


def figure_of(
    measured: Sequence[Measured],
    *,
    weights: Sequence[float],
    images: int | None = None,
    interval: float | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Figure:
    """The weighted sum of errors, with its images and, on request, its bootstrap interval.

    Shifts and severities are drawn independently of each other. Where they show the same images
    (ImageNet-C), errors go together and the true interval is wider.
    """
    value = sum(w * m.error for w, m in zip(weights, measured, strict=True))
    known = [m.images for m in measured if m.images is not None]
    if len(known) == len(measured):
        images = sum(known)
    if interval is None:
        return Figure(value=value, images=images)
    check_draws(level=interval, draws=draws)
    rng = np.random.default_rng(seed)
    samples = np.zeros(draws)
    for weight, m in zip(weights, measured, strict=True):
        samples += weight * m.resample(draws=draws, rng=rng)
    low, high = percentile_interval(samples, level=interval)
    return Figure(value=value, images=images, low=low, high=high, level=interval)
