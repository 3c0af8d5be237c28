"""Errors relative to a baseline model's, and their mean: what mCE and mDE have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from acclimate.data.shift import STAND_INS
from acclimate.errors import AcclimateError, unknown_name
from acclimate.metrics.bootstrap import binomial_errors, check_draws, percentile_interval
from acclimate.metrics.error import ErrorCounts
from acclimate.metrics.figure import Figure
from acclimate.metrics.mean import mean
from acclimate.metrics.published import (
    ALEXNET_CORRUPTIONS,
    ALEXNET_DOMAINS,
    CORRUPTIONS,
    DEV_CORRUPTIONS,
    DOMAINS,
)

__all__ = [
    "Errors",
    "MeanCorruptionError",
    "MeanDomainError",
    "Measured",
    "RelativeError",
    "mce",
    "mde",
    "mean_error",
    "measure",
]

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
        return mean(self.parts)

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


@dataclass(frozen=True, kw_only=True)
class MeanCorruptionError(RelativeError):
    """The mCE, and of what it is the mean."""

    @property
    def corruptions(self) -> Mapping[str, float]:
        """The corruption error (CE) of each corruption, in percent of the baseline's error."""
        return self.parts


def mce(
    errors: Errors,
    *,
    baseline: Mapping[str, float] = ALEXNET_CORRUPTIONS,
    corruptions: Sequence[str] = CORRUPTIONS,
    partial: bool = False,
    images: int | None = None,
    interval: float | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> MeanCorruptionError:
    """Mean over corruptions of the model's error over the baseline's, in percent.

    Args:
        errors: by corruption: the mean error over the five severities in percent, or a sequence
            of the five. Numbers, figures or :class:`ErrorCounts`.
        baseline: the errors to divide by; AlexNet's from the paper.
        corruptions: which ones enter. ``DEV_CORRUPTIONS`` gives the mCE of the hold-out ones.
        partial: take the mean over what is there, and say of how many.
        images: how many images the errors come from, where they do not say themselves.
        interval: level of a bootstrap interval; needs ErrorCounts. Corruptions and severities are
            drawn independently, which is too narrow where they show the same images.
        draws: resamples for the interval.
        seed: of the resampling.

    >>> print(mce({name: error / 2 for name, error in ALEXNET_CORRUPTIONS.items()
    ...            if name in CORRUPTIONS}, images=3_750_000))
    mCE 50.0 % (3,750,000 images)
    >>> print(mce({"fog": 40.9662, "snow": 43.3408}, partial=True))
    mCE 50.0 % (number of images not stated); over 2 of 15 corruptions
    """
    renamed, notes = _stand_ins(errors)
    _refuse_other_set(renamed, corruptions)
    measured = read_errors(
        renamed,
        kind="corruption",
        metric="mCE",
        names=corruptions,
        partial=partial,
        severities=SEVERITIES,
    )
    parts = relative_parts(measured, kind="corruption", baseline=baseline)
    if len(parts) < len(corruptions):
        notes.insert(0, f"over {len(parts)} of {len(corruptions)} corruptions")
    if set(corruptions) == set(DEV_CORRUPTIONS):
        notes.insert(0, "over the hold-out corruptions")
    if any(len(m.parts) not in (1, SEVERITIES) for m in measured):
        notes.append(f"not all of {SEVERITIES} severities")
    figure = figure_of(
        measured,
        weights=[100 / baseline[m.name] / len(measured) for m in measured],
        images=images,
        interval=interval,
        draws=draws,
        seed=seed,
    )
    return MeanCorruptionError(
        metric="mCE", figure=figure, parts=parts, expected=len(corruptions), notes=tuple(notes)
    )


def _stand_ins(errors: Errors) -> tuple[Errors, list[str]]:
    notes, renamed = [], dict(errors)
    for name, place in STAND_INS.items():
        if name in renamed:
            if place in renamed:
                raise AcclimateError(
                    f"expected one of {place!r} and {name!r}, got both; leave one out"
                )
            renamed[place] = renamed.pop(name)
            notes.append(f"{name} stands in for {place}, so not comparable with published mCE")
    return renamed, notes


def _refuse_other_set(errors: Errors, corruptions: Sequence[str]) -> None:
    # Known names, but not of this mean: the list of known names would not say what is wrong.
    others = [name for name in errors if name in DEV_CORRUPTIONS and name not in corruptions]
    if others:
        raise AcclimateError(
            f"expected the {len(corruptions)} corruptions of the mCE, got {', '.join(others)}, "
            "on which hyper-parameters are chosen; leave them out, or take only those with "
            "corruptions=DEV_CORRUPTIONS"
        )


@dataclass(frozen=True, kw_only=True)
class MeanDomainError(RelativeError):
    """The mDE, and of what it is the mean."""

    @property
    def domains(self) -> Mapping[str, float]:
        """The domain error (DE) of each domain, in percent of the baseline's error."""
        return self.parts


def mde(
    errors: Errors,
    *,
    baseline: Mapping[str, float] = ALEXNET_DOMAINS,
    partial: bool = False,
    images: int | None = None,
    interval: float | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> MeanDomainError:
    """Mean over the six domains of the model's error over the baseline's, in percent.

    The paper's formula prints the mean of the errors themselves; its text, and the numbers of
    unadapted models, mean that of the relative errors. Arguments are those of :func:`mce`.

    >>> print(mde({"clipart": 76.0, "infograph": 89.6, "painting": 65.1, "quickdraw": 99.2,
    ...            "real": 40.1, "sketch": 82.0}))
    mDE 88.2 % (number of images not stated)
    """
    measured = read_errors(
        errors, kind="domain", metric="mDE", names=DOMAINS, partial=partial, severities=1
    )
    parts = relative_parts(measured, kind="domain", baseline=baseline)
    missing = len(parts) < len(DOMAINS)
    figure = figure_of(
        measured,
        weights=[100 / baseline[m.name] / len(measured) for m in measured],
        images=images,
        interval=interval,
        draws=draws,
        seed=seed,
    )
    return MeanDomainError(
        metric="mDE",
        figure=figure,
        parts=parts,
        expected=len(DOMAINS),
        notes=(f"over {len(parts)} of {len(DOMAINS)} domains",) if missing else (),
    )
