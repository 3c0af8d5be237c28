"""Errors relative to a baseline model's, and their mean: what mCE and mDE have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias, cast

import numpy as np

from acclimate.data.shift import STAND_INS
from acclimate.errors import AcclimateError, unknown_name
from acclimate.metrics.error import ErrorCounts
from acclimate.metrics.figure import Figure, binomial_errors, figure_of
from acclimate.metrics.mean import mean
from acclimate.metrics.published import (
    ALEXNET_CORRUPTIONS,
    ALEXNET_DOMAINS,
    CORRUPTIONS,
    DEV_CORRUPTIONS,
    DOMAINS,
)

__all__ = ["Errors", "RelativeError", "mce", "mde", "mean_error"]

ErrorLike: TypeAlias = float | Figure | ErrorCounts
Errors: TypeAlias = Mapping[str, ErrorLike | Sequence[ErrorLike]]

SEVERITIES = 5


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """The error on one shift: the mean of its parts (severities), each with what is known of it."""

    name: str
    parts: tuple[float, ...]
    images: int | None
    counts: tuple[tuple[int, int], ...] | None

    @property
    def error(self) -> float:
        return mean(self.parts)

    def resample(self, *, draws: int, rng: np.random.Generator) -> np.ndarray:
        """The error in ``draws`` draws of the images of each part."""
        if self.counts is None:
            raise AcclimateError(
                f"expected counts for an interval, got only the error of {self.name!r}; give "
                "ErrorCounts, which know how many images were wrong"
            )
        drawn = [binomial_errors(w, n, draws=draws, rng=rng) for w, n in self.counts]
        return np.asarray(np.mean(drawn, axis=0))


def _measure(
    name: str, given: ErrorLike | Sequence[ErrorLike], *, severities: int | None = None
) -> _Measured:
    """Read what was given for one shift; ``severities`` is how many a sequence must hold."""
    # Numbers of NumPy and PyTorch too; a tensor without dimensions is one.
    if isinstance(given, Figure | ErrorCounts | Real) or getattr(given, "ndim", None) == 0:
        cells: list[ErrorLike] = [cast(ErrorLike, given)]
    elif isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise AcclimateError(
            f"expected an error in percent for {name!r}, or one per severity, got {given!r}"
        )
    else:  # arrays and one-dimensional tensors too: whatever can be walked through
        cells = list(given)
        if not cells:
            raise AcclimateError(
                f"expected an error in percent for {name!r}, got an empty sequence"
            )
        if severities == 1 < len(cells):
            raise AcclimateError(f"expected one error for {name!r}, got {len(cells)}")
        if severities is not None and len(cells) != severities:
            raise AcclimateError(
                f"expected the error of {name!r} at {severities} severities, got {len(cells)}; "
                "give all of them or their mean, or say partial=True"
            )
    figures = [cell.error() if isinstance(cell, ErrorCounts) else cell for cell in cells]
    counts = [cell.counts() for cell in cells if isinstance(cell, ErrorCounts)]
    return _Measured(
        name=name,
        parts=tuple(_percent(name, figure) for figure in figures),
        images=_total(each.images if isinstance(each, Figure) else None for each in figures),
        counts=tuple(counts) if len(counts) == len(cells) else None,
    )


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


def _total(counts: Iterable[int | None]) -> int | None:
    """Their sum, where all are known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _weighted(
    measured: Sequence[_Measured],
    weights: Sequence[float],
    *,
    images: int | None,
    interval: float | None,
    draws: int,
    seed: int,
) -> Figure:
    """The weighted sum of errors, with its images and, on request, its bootstrap interval.

    Shifts and severities are drawn independently of each other. Where they show the same images
    (ImageNet-C), errors go together and the true interval is wider.
    """

    def samples(rng: np.random.Generator) -> np.ndarray:
        total = np.zeros(draws)
        for weight, each in zip(weights, measured, strict=True):
            total += weight * each.resample(draws=draws, rng=rng)
        return total

    known = _total(each.images for each in measured)
    return figure_of(
        sum(weight * each.error for weight, each in zip(weights, measured, strict=True)),
        images=images if known is None else known,
        samples=samples,
        interval=interval,
        draws=draws,
        seed=seed,
    )


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
    measured = [_measure(name, given) for name, given in errors.items()]
    weights = [1 / len(measured)] * len(measured)
    return _weighted(measured, weights, images=images, interval=interval, draws=draws, seed=seed)


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
    notes: tuple[str, ...] = ()

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


def _relative(
    metric: str,
    kind: str,
    errors: Errors,
    *,
    names: Sequence[str],
    baseline: Mapping[str, float],
    partial: bool,
    severities: int,
    notes: Sequence[str] = (),
    **options: Any,
) -> RelativeError:
    """The mean of errors over a baseline's, all of ``names`` unless ``partial``."""
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
    wanted = None if partial else severities
    there = [name for name in names if name in errors]
    measured = [_measure(name, errors[name], severities=wanted) for name in there]
    parts = {}
    for each in measured:
        if each.name not in baseline:
            raise AcclimateError(
                f"expected a baseline error for the {kind} {each.name!r}, got none"
            )
        if not 0 < baseline[each.name] <= 100:
            raise AcclimateError(
                f"expected a baseline error above 0 and up to 100 percent for {each.name!r}, got "
                f"{baseline[each.name]!r}"
            )
        parts[each.name] = 100 * each.error / baseline[each.name]
    if missing:
        notes = [f"over {len(there)} of {len(names)} {kind}s", *notes]
    if set(names) == set(DEV_CORRUPTIONS):
        notes = ["over the hold-out corruptions", *notes]
    if severities > 1 and any(len(each.parts) not in (1, severities) for each in measured):
        notes = [*notes, f"not all of {severities} severities"]
    weights = [100 / baseline[each.name] / len(measured) for each in measured]
    figure = _weighted(measured, weights, **options)
    return RelativeError(
        metric=metric, figure=figure, parts=parts, expected=len(names), notes=tuple(notes)
    )


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
) -> RelativeError:
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
    notes, renamed = [], dict(errors)
    for name, place in STAND_INS.items():
        if name in renamed:
            if place in renamed:
                raise AcclimateError(
                    f"expected one of {place!r} and {name!r}, got both; leave one out"
                )
            renamed[place] = renamed.pop(name)
            notes.append(f"{name} stands in for {place}, so not comparable with published mCE")
    # Known names, but not of this mean: the list of known names would not say what is wrong.
    others = [name for name in renamed if name in DEV_CORRUPTIONS and name not in corruptions]
    if others:
        raise AcclimateError(
            f"expected the {len(corruptions)} corruptions of the mCE, got {', '.join(others)}, "
            "on which hyper-parameters are chosen; leave them out, or take only those with "
            "corruptions=DEV_CORRUPTIONS"
        )
    return _relative(
        "mCE",
        "corruption",
        renamed,
        names=corruptions,
        baseline=baseline,
        partial=partial,
        severities=SEVERITIES,
        notes=notes,
        images=images,
        interval=interval,
        draws=draws,
        seed=seed,
    )


def mde(
    errors: Errors,
    *,
    baseline: Mapping[str, float] = ALEXNET_DOMAINS,
    partial: bool = False,
    images: int | None = None,
    interval: float | None = None,
    draws: int = 1000,
    seed: int = 0,
) -> RelativeError:
    """Mean over the six domains of the model's error over the baseline's, in percent.

    The paper's formula prints the mean of the errors themselves; its text, and the numbers of
    unadapted models, mean that of the relative errors. AlexNet's errors are with the map of
    ``imagenet-d``: errors with another map need a ``baseline`` with that. Arguments are those of
    :func:`mce`.

    >>> print(mde({"clipart": 76.0, "infograph": 89.6, "painting": 65.1, "quickdraw": 99.2,
    ...            "real": 40.1, "sketch": 82.0}))
    mDE 88.2 % (number of images not stated)
    """
    return _relative(
        "mDE",
        "domain",
        errors,
        names=DOMAINS,
        baseline=baseline,
        partial=partial,
        severities=1,
        images=images,
        interval=interval,
        draws=draws,
        seed=seed,
    )
