"""mCE, the mean corruption error of ImageNet-C: error relative to AlexNet's, by corruption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acclimate.corruption_names import STAND_INS
from acclimate.errors import AcclimateError
from acclimate.metrics.measured import SEVERITIES, Errors, figure_of
from acclimate.metrics.published import ALEXNET_CORRUPTIONS, CORRUPTIONS, DEV_CORRUPTIONS
from acclimate.metrics.relative_error import RelativeError, read_errors, relative_parts

__all__ = ["MeanCorruptionError", "mce"]


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
