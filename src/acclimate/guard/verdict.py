"""The guard's one line at the end: did adaptation help, and how is that known.

Without labels, a model that became more confident proves nothing: self-learning makes every model
more confident. The verdict rests on the estimated change of the error
(:mod:`acclimate.guard.estimate`). Where that cannot be made, an old sign still tells an appearance
shift from a new mix of classes: *where* the statistics of the images differ from the source's. A
camera, a blur or a fog shows in all layers and most in the first; a set that holds only a few
classes shows in the last, where classes are told apart, and there new statistics do harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from acclimate.guard.estimate import LATE, lateness
from acclimate.guard.history import History
from acclimate.metrics import Scores
from acclimate.text import VerdictWord

__all__ = ["Verdict", "judge", "label_free_score"]

FEW_FLIPS = 0.01
"""Below this share of changed predictions adaptation made no difference."""

LESS_CONFIDENT = 0.5
"""Mean confidence below this share of the source model's speaks against the predictions."""

SPREAD = 1.5
"""Where the classes in use grew by this factor, and the statistics differ late, it is more likely
that the set holds other classes than that it looks otherwise."""


@dataclass(frozen=True)
class Verdict:
    """``helpful``, ``unclear``, ``unchanged``, ``harmful`` or ``refused`` (not returned), and why.

    ``returns_adapted`` is whether the adapted model is the better guess.
    """

    word: VerdictWord
    reason: str
    returns_adapted: bool = True

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}"

    def with_source_returned(self) -> Verdict:
        """The verdict once the unadapted model is returned instead.

        >>> print(Verdict("harmful", "why").with_source_returned())
        refused: why; the source model is returned
        """
        word: VerdictWord = "refused" if self.word == "harmful" else self.word
        return Verdict(word, f"{self.reason}; the source model is returned", returns_adapted=False)


def label_free_score(scores: Scores) -> float:
    """How good a state looks without labels; larger is better.

    Agreement with the source model lost least on the hold-out shifts among states that did not
    drift far: learning that goes well returns to predictions the source had right.
    """
    assert scores.agreement is not None
    return scores.agreement


def judge(history: History, *, went_wrong: str | None = None) -> Verdict:
    """Compare the model returned with the source model, without labels.

    ``went_wrong`` is trouble the guard saw and did not undo.
    """
    source, start, final = history.source, history.start, history.final
    if went_wrong is not None:
        return Verdict("harmful", went_wrong, returns_adapted=False)
    if source is None or final is None or final.agreement is None:
        return Verdict("unclear", "nothing was compared with the source model")
    if not math.isfinite(final.confidence):
        return Verdict("harmful", "the predictions are not finite", returns_adapted=False)
    flips = 1 - final.agreement
    if flips < FEW_FLIPS:
        return Verdict("unchanged", f"only {flips:.1%} of the predictions changed")
    changed = f"{flips:.0%} of the predictions changed"
    few_classes = None if start is None else _few_classes(history, source, start)
    estimate = history.estimate
    if estimate is None:
        if few_classes is not None:
            return Verdict("harmful", f"{changed}; {few_classes}", returns_adapted=False)
        return Verdict("unclear", f"{changed}; the error cannot be estimated")
    reason, better = f"{estimate}; {changed}", estimate.change.value <= 0
    if estimate.change.excludes_zero and better:
        return Verdict("helpful", reason)
    if few_classes is not None:
        reason = f"{reason}; {few_classes}"
    word: VerdictWord = "harmful" if estimate.change.excludes_zero else "unclear"
    return Verdict(word, reason, returns_adapted=better)


def _few_classes(history: History, source: Scores, start: Scores) -> str | None:
    """What speaks of a set with a few of the classes, which new statistics misread; in words."""
    if not start.diversity > SPREAD * source.diversity:
        return None  # new statistics brought no classes back that were not in use before
    if start.confidence < LESS_CONFIDENT * source.confidence:
        because = f"confidence falls from {source.confidence:.2f} to {start.confidence:.2f}"
    elif lateness(history.statistics_shift) > LATE:
        because = "the images differ from the source's most in the last layers"
    else:
        return None
    return (
        f"{because}: the set seems to hold a few of the classes ({source.diversity:.1f} in use "
        f"before, {start.diversity:.1f} after) rather than an appearance shift; try "
        '--set normalization=source (options={"normalization": "source"})'
    )
