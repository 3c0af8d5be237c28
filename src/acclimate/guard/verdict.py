"""The guard's one line at the end: did adaptation look helpful, and why.

Without labels, a model that became more confident proves nothing: self-learning makes every model
more confident. What tells an appearance shift from a new mix of classes is *where* the statistics
of the images differ from the source's: a camera, a blur or a fog shows in all layers and most in
the first; a set that holds only a few classes shows in the last, where classes are told apart, and
there new statistics do harm.
``benchmarks/label_free.py`` measures this; thresholds were set on the hold-out shifts only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from acclimate.guard.history import History
from acclimate.metrics import Scores
from acclimate.text import VerdictWord

__all__ = ["Verdict", "earned_confidence", "judge", "label_free_score", "late_shift"]

FEW_FLIPS = 0.01
"""Below this share of changed predictions adaptation made no difference."""

NEARLY_ALL = 0.9
"""Times the share that chance would change: then the source model knew nothing here."""

FEW_IMAGES = 50
"""Below this many images nothing is judged."""

LESS_CONFIDENT = 0.5
"""Mean confidence below this share of the source model's speaks against the predictions."""

HARDLY = 0.1
"""Mean confidence this little of the way from chance to certainty: the model knows nothing here."""

NOT_MORE_CONFIDENT = 0.02
"""Confidence gained per overturned prediction that is no more than noise."""

LATE_SHIFT, SPREAD = 1.1, 1.5
"""Statistics that differ this many times more in the last layer than on average, while the classes
in use grew by this factor, speak of other classes rather than of an appearance shift."""


@dataclass(frozen=True)
class Verdict:
    """``helpful``, ``neutral``, ``harmful`` or ``refused`` (not returned), and why."""

    word: VerdictWord
    reason: str

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}"


def label_free_score(scores: Scores) -> float:
    """How good a state looks without labels; larger is better.

    Agreement with the source model lost least on the hold-out shifts among states that did not
    drift far: learning that goes well returns to predictions the source had right.
    """
    assert scores.agreement is not None
    return scores.agreement


def earned_confidence(source: Scores, other: Scores) -> float:
    """Rise in mean confidence per prediction overturned."""
    flips = _flips(other)
    return (other.confidence - source.confidence) / flips if flips else 0.0


def judge(history: History, *, went_wrong: str | None = None) -> Verdict:
    """Compare the model returned with the source model, without labels.

    ``went_wrong`` is trouble the guard saw and did not undo.
    """
    source, start, final = history.source, history.start, history.final
    if source is None or final is None or final.agreement is None:
        return Verdict("neutral", "nothing was compared with the source model")
    flips = 1 - final.agreement
    changed = f"{flips:.0%} of the predictions changed"
    if went_wrong is not None:
        return Verdict("harmful", went_wrong)
    if not math.isfinite(final.confidence):
        return Verdict("harmful", "the predictions are not finite")
    if flips < FEW_FLIPS:
        return Verdict("neutral", f"only {flips:.1%} of the predictions changed")
    if start is not None and _lost_its_footing(source, start):  # plain from few images too
        falls = f"confidence falls from {source.confidence:.2f} to {start.confidence:.2f}"
        return _few_classes(source, start, falls)
    if final.images < FEW_IMAGES:
        return Verdict("neutral", f"{changed}; {final.images} images are too few to tell more")
    if not history.statistics_shift:
        return Verdict(
            "neutral", f"{changed}; without new batch statistics nothing shows whether for better"
        )
    doubt = _doubt_of_statistics(history, source, start) if start is not None else None
    if doubt is not None:
        return doubt
    chance = 1 / max(len(source.class_counts), 2)
    if source.confidence < chance + HARDLY * (1 - chance):
        return Verdict(
            "neutral",
            f"{changed}, but the source model is hardly more confident than chance (confidence "
            f"{source.confidence:.2f}): are these its trained weights?",
        )
    if earned_confidence(source, final) < NOT_MORE_CONFIDENT:
        return Verdict(
            "neutral",
            f"{changed}, but the model is no more confident of the new ones; check some by hand",
        )
    return Verdict(
        "helpful",
        f"{changed}, confidence {source.confidence:.2f} -> "
        f"{final.confidence:.2f}, classes in use {source.diversity:.1f} -> {final.diversity:.1f}",
    )


def late_shift(shift: Sequence[float]) -> float:
    """How much more the statistics of the last layer differ than those of the average layer.

    >>> late_shift([0.5, 0.5, 2.0])
    2.0
    """
    return shift[-1] / max(fmean(shift), 1e-12) if shift else 0.0


def _recovered(source: Scores, start: Scores) -> bool:
    """Whether new statistics brought back classes that the source model no longer used."""
    return start.diversity > SPREAD * source.diversity


def _doubt_of_statistics(history: History, source: Scores, start: Scores) -> Verdict | None:
    """What speaks against the new statistics, before anything was learnt."""
    flips = _flips(start)
    if flips < FEW_FLIPS:
        return None
    chance = 1 - 1 / max(len(source.class_counts), 2)
    if flips >= NEARLY_ALL * chance:
        return Verdict(
            "neutral",
            f"{_overturned(start)}; the source model used {source.diversity:.1f} classes and is "
            "likely near chance here, so check some predictions by hand",
        )
    if _recovered(source, start) and late_shift(history.statistics_shift) > LATE_SHIFT:
        return _few_classes(
            source, start, "the images differ from the source's most in the last layer"
        )
    return None


def _lost_its_footing(source: Scores, start: Scores) -> bool:
    """Whether new statistics brought classes back with little confidence."""
    return _recovered(source, start) and start.confidence < LESS_CONFIDENT * source.confidence


def _few_classes(source: Scores, start: Scores, because: str) -> Verdict:
    return Verdict(
        "harmful",
        f"{_overturned(start)}, and {because}: the set seems to hold a few of the classes "
        f"({source.diversity:.1f} in use before, {start.diversity:.1f} after) rather than "
        'an appearance shift; try --set normalization=source (options={"normalization": "source"})',
    )


def _overturned(start: Scores) -> str:
    return f"new statistics overturn {_flips(start):.0%} of the predictions"


def _flips(scores: Scores) -> float:
    return 1 - (scores.agreement if scores.agreement is not None else 1.0)
