"""Errors relative to a baseline model's, and their mean: what mCE and mDE have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from acclimate.errors import AcclimateError, unknown_name
from acclimate.metrics.figure import Figure
from acclimate.metrics.measured import Errors, Measured, figure_of, measure

__all__ = ["RelativeError", "mean_error", "read_errors", "relative_parts"]


@dataclass(frozen=True, kw_only=True)
class RelativeError:
    """A mean of errors in percent of a baseline's errors.

    Attributes:
        metric: its name.
        figure: the number with its images and interval.
        parts: the relative error in percent of each shift that enters it.
        expected: how many shifts the metric is defined over.
        notes: what a reader must know before comparing it with others' numbers.
    """

    metric: str
    figure: Figure
    parts: Mapping[str, float]
    expected: int
    notes: tuple[str, ...] = field(default=())

    @property
    def value(self) -> float:
        """The number, in percent."""
        return self.figure.value

    @property
    def images(self) -> int | None:
        """How many labelled images it was computed on, if that is known."""
        return self.figure.images

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        notes = "".join(f"; {note}" for note in self.notes)
        return f"{self.metric} {self.figure}{notes}"


def mean_error(
    errors: Errors,
    *,
    images: int | None = None,
    interval: float | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> Figure:
    """Mean error in percent over shifts of any name, each counting the same.

    Args:
        errors: by shift: an error in percent, a :class:`Figure`, :class:`ErrorCounts`, or a
            sequence of those (its severities), which is averaged.
        images: how many images the errors come from, where they do not say themselves.
        interval: level of a bootstrap interval; needs ErrorCounts.
        draws: resamples for the interval.
        seed: of the resampling.

    >>> print(mean_error({"fog": 10.0, "snow": [20.0, 40.0]}, images=300))
    20.0 % (300 images)
    """
    if not errors:
        raise AcclimateError("expected the error of at least one shift, got none")
    measured = [measure(name, given) for name, given in errors.items()]
    return figure_of(
        measured,
        weights=[1 / len(measured)] * len(measured),
        images=images,
        interval=interval,
        draws=draws,
        seed=seed,
    )


def read_errors(
    errors: Errors,
    *,
    kind: str,
    metric: str,
    names: Sequence[str],
    partial: bool,
    severities: int | None,
) -> list[Measured]:
    """The errors in the order of ``names``; unknown and missing names are refused."""
    for name in errors:
        if name not in names:
            raise unknown_name(kind, str(name), names)
    missing = [name for name in names if name not in errors]
    if len(missing) == len(names):
        raise AcclimateError(f"expected the errors of {len(names)} {kind}s for the {metric}, got 0")
    if missing and not partial:
        raise AcclimateError(
            f"expected the errors of {len(names)} {kind}s for the {metric}, got "
            f"{len(names) - len(missing)}; missing: {', '.join(missing)}. Measure them, or say "
            "partial=True for the mean over those given"
        )
    return [
        measure(name, errors[name], severities=None if partial else severities)
        for name in names
        if name in errors
    ]


def relative_parts(
    measured: Sequence[Measured], *, kind: str, baseline: Mapping[str, float]
) -> dict[str, float]:
    """Each error in percent of the baseline's."""
    parts = {}
    for m in measured:
        if m.name not in baseline:
            raise AcclimateError(f"expected a baseline error for the {kind} {m.name!r}, got none")
        if not 0 < baseline[m.name] <= 100:
            raise AcclimateError(
                f"expected a baseline error above 0 and up to 100 percent for {m.name!r}, got "
                f"{baseline[m.name]!r}"
            )
        parts[m.name] = 100 * m.error / baseline[m.name]
    return parts
