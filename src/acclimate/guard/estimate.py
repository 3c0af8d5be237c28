"""The error of a model on images without labels, estimated from how it treats views of them.

Two forests do it, fitted on the dev half of the bank of cases (``python benchmarks/estimates.py
fit``, which writes ``estimate.npz``): one for the level of the error, one for how it changes from
one state of a model to another. A model that knows what it sees predicts the same class when the
image is mirrored or cut a little tighter; a change shows on the images whose prediction changed,
and in which classes are in use. Intervals are as wide as the residuals on shifts that were left out
of the fit, plus what so many images can tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from io import BytesIO
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acclimate.guard.evidence import VIEWS, Evidence
from acclimate.guard.forest import Forest

__all__ = [
    "COVERAGE",
    "ENOUGH",
    "LATE",
    "ErrorEstimate",
    "Fitted",
    "Interval",
    "change_from",
    "change_signs",
    "estimate_change",
    "estimate_error",
    "estimate_from",
    "estimate_level",
    "fitted",
    "guess",
    "lateness",
    "level_from",
    "level_signs",
    "log_odds",
    "mean_estimate",
    "telling_views",
]

ENOUGH = 30
"""Below this many images nothing is estimated."""

COVERAGE = 0.9
"""The share of cases whose true error should lie in the interval."""

LATE = 0.6
"""Lateness above this speaks of a few of the classes rather than of another appearance."""

MEANINGLESS = 0.3
"""A view that changes so many more of the predictions than another changes the class itself."""

_Z = NormalDist().inv_cdf((1 + COVERAGE) / 2)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A number in percent, or percentage points, and the range it lies in nine times of ten."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Whole points: more would not be known."""
        return f"{self.value:.0f} % (± {(self.high - self.low) / 2:.0f})"

    @property
    def excludes_zero(self) -> bool:
        """Whether the sign is known."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, kw_only=True)
class ErrorEstimate:
    """The error in percent, without labels: of the unadapted model, of the one adapted, the change.

    ``images`` is how many were looked at.

    >>> sure = Interval(value=20, low=16, high=24)
    >>> gain = Interval(value=-28, low=-32, high=-24)
    >>> print(ErrorEstimate(before=Interval(value=48, low=40, high=56), after=sure, change=gain,
    ...                     images=500))
    estimated error 48 % -> 20 % (± 4)
    """

    before: Interval
    after: Interval
    change: Interval
    images: int

    def __str__(self) -> str:
        """One phrase; the range is that of the change, which decides."""
        half = (self.change.high - self.change.low) / 2
        return (
            f"estimated error {self.before.value:.0f} % -> {self.after.value:.0f} % (± {half:.0f})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> ErrorEstimate:
        """Read :meth:`to_dict`'s values back."""
        intervals = {name: Interval(**plain[name]) for name in ("before", "after", "change")}
        return cls(images=plain["images"], **intervals)


def log_odds(share: float, images: int) -> float:
    """ln(share / (1 - share)), finite at 0 and 1: half an image is added to either side.

    >>> log_odds(0.5, 10), log_odds(1.0, 10) == -log_odds(0.0, 10)
    (0.0, True)
    """
    hits = share * images
    return math.log((hits + 0.5) / (images - hits + 0.5))


@dataclass(frozen=True)
class Fitted:
    """A forest, and how far off it was on shifts left out of the fit.

    The variance of what it predicts adds up from three: ``spread`` times that over its trees,
    ``least`` times the largest there could be, and ``drawn`` times what so few images add.
    """

    forest: Forest
    spread: float
    least: float
    drawn: float

    def deviation(self, trees: float, most: float, few: float) -> float:
        """The standard deviation, given those of the trees, the largest, and of so few images."""
        return math.sqrt(
            self.spread * trees**2 + self.least * most**2 + self.drawn * few**2,
        )


@cache
def fitted() -> dict[str, Fitted]:
    """Those that are stored: of the "level", and of a "change"."""
    content = (files("acclimate.guard") / "estimate.npz").read_bytes()
    with np.load(BytesIO(content)) as stored:
        return {
            name: Fitted(Forest.read(stored, name), *stored[f"{name}/widths"].tolist())
            for name in ("level", "change")
        }


def level_signs(
    evidence: Evidence, *, shift: Sequence[float] = (), adapted: bool = False
) -> dict[str, float]:
    """What shows of the error of one state.

    In log-odds: ``stays``, ``mirrored`` and ``zoomed``, how often the class stays in mild views;
    ``confidence``, its mean; ``largest``, the share of the class predicted most: a network that
    breaks down predicts one class. ``steady`` is how probable the class is in the views,
    ``entropy`` that of the probabilities, ``used`` that of the classes predicted. ``distance`` and
    ``late`` are how far the statistics of the images are from the source's (``shift``, layer by
    layer), and whether most in the last layers; ``strange`` is the distance where the source's are
    used all the same. All are numbers; a distance of -1 is unknown.
    """
    n, used = len(evidence), telling_views(evidence)
    each = evidence.stays.float().mean(dim=0).tolist()
    stays = log_odds(sum(each[view] for view in used) / len(used), n)
    by_view = {name: log_odds(share, n) for name, share in zip(VIEWS, each, strict=True)}
    mirrored = list(VIEWS).index("mirrored")
    confidence = log_odds(float(evidence.confidence.mean()), n)
    distance = sum(shift) / len(shift) if shift else -1.0
    return {
        "images": math.log(n),
        "classes": math.log(evidence.classes),
        "stays": stays,
        "zoomed": by_view["zoomed"],
        "mirrored": by_view["mirrored"] if mirrored in used else stays,
        "confidence": confidence,
        "stays x confidence": stays * confidence,
        "largest": log_odds(int(evidence.predicted.bincount().max()) / n, n),
        "steady": float(evidence.probability[:, used].mean()),
        "entropy": float(evidence.entropy.mean()),
        "used": _class_entropy(evidence) / math.log(max(2, min(n, evidence.classes))),
        "distance": distance,
        "late": lateness(shift),
        "strange": 0.0 if adapted else distance,
    }


_COMPARED = ("stays", "zoomed", "mirrored", "confidence", "largest", "steady", "entropy", "used")
"""Signs of both levels that show in a change."""


def change_signs(
    before: Evidence,
    after: Evidence,
    *,
    shift: Sequence[float] = (),
    statistics: bool = True,
) -> dict[str, float]:
    """What shows of the change of the error: of both levels, and on images predicted otherwise.

    ``changed`` is their share of all. Of the earlier and the later prediction for these,
    ``earlier`` and ``later`` are how probable they are, ``certainty`` is how much more probable the
    earlier one was, ``steadiness`` and ``staying`` how much more so, and how much more often, in
    views of the image. ``growth`` is by which factor (its logarithm) more classes are in use.
    ``statistics`` is whether it is new statistics that made the change, in part or in whole.
    """
    changed = before.predicted != after.predicted
    m, n = int(changed.sum()), len(before)
    views = telling_views(before, after)

    def mean(of: Tensor) -> float:
        return float(of[changed].float().sum()) / (m + 2)  # drawn to zero where few changed

    one, two = level_signs(before, shift=shift), level_signs(after, shift=shift)
    own = [each.probability[:, views].float().mean(dim=1) for each in (before, after)]
    stays = [each.stays[:, views].float().mean(dim=1) for each in (before, after)]
    return {
        **{name: one[name] for name in ("images", "classes", "distance", "late")},
        **{f"{name} before": one[name] for name in _COMPARED},
        **{f"{name} after": two[name] for name in _COMPARED},
        **{f"{name} change": two[name] - one[name] for name in _COMPARED},
        "changed": m / n,
        "statistics": float(statistics),
        "earlier": mean(before.confidence),
        "later": mean(after.confidence),
        "certainty": mean(before.confidence - after.confidence),
        "steadiness": mean(own[0] - own[1]),
        "staying": mean(stays[0] - stays[1]),
        "growth": _class_entropy(after) - _class_entropy(before),
    }


def lateness(shift: Sequence[float]) -> float:
    """How much further the last layers' statistics are from the source's than the middle ones'.

    The logarithm of a ratio: above 0 where the last layers differ more; 0 without statistics.

    >>> round(lateness([0.5] * 14 + [1.0, 1.0]), 2), lateness([])
    (0.69, 0.0)
    """
    if not shift:
        return 0.0
    at = [shift[len(shift) * part // 8] for part in range(8)]
    last, middle = max(at[7], shift[-1]), sum(at[1:6]) / 5
    return math.log((last + 1e-3) / (middle + 1e-3))


def telling_views(*states: Evidence) -> list[int]:
    """Which views leave the class unchanged: a mirrored digit is none, whatever it was before."""
    mirrored, zoomed = list(VIEWS).index("mirrored"), list(VIEWS).index("zoomed")
    for evidence in states:
        stays = evidence.stays.float().mean(dim=0)
        if float(stays[zoomed] - stays[mirrored]) > MEANINGLESS:
            return [zoomed]
    return [mirrored, zoomed]


def estimate_error(
    before: Evidence,
    after: Evidence,
    *,
    between: Evidence | None = None,
    learnt: bool,
    shift: Sequence[float] = (),
) -> ErrorEstimate | None:
    """The error of the unadapted and the adapted model; None where it cannot be estimated.

    ``between`` is the unadapted model with the new statistics, where there are any; ``learnt`` is
    whether anything was learnt after; ``shift`` is how far the images' statistics are from the
    source's, layer by layer. The levels and the changes are estimated apart, then brought into line
    with each other, each by as much as it is uncertain.
    """
    states = [state for state in (before, between, after) if state is not None]
    if not all(_tells(state) for state in states):
        return None
    middle = after if between is None and not learnt else between
    changes = []
    if middle is not None:
        changes.append(change_signs(before, middle, shift=shift))
    if middle is not after:
        changes.append(change_signs(middle or before, after, shift=shift, statistics=False))
    return estimate_from(
        level_signs(before, shift=shift),
        level_signs(after, shift=shift, adapted=middle is not None),
        changes,
    )


def estimate_from(
    before: Mapping[str, float],
    after: Mapping[str, float],
    changes: Sequence[Mapping[str, float]],
) -> ErrorEstimate:
    """The same, from the signs of both levels and of what changed between them, in turn."""
    found = [change_from(signs) for signs in changes]
    c, c_spread = sum(each for each, _ in found), math.hypot(*(each for _, each in found))
    (b, b_spread), (a, a_spread) = level_from(before), level_from(after)
    gap = (a - b - c) / (b_spread**2 + a_spread**2 + c_spread**2)
    return ErrorEstimate(
        before=_interval(b + gap * b_spread**2, b_spread, 0),
        after=_interval(a - gap * a_spread**2, a_spread, 0),
        change=_interval(c + gap * c_spread**2, c_spread, -1),
        images=round(math.exp(before["images"])),
    )


def mean_estimate(estimates: Sequence[ErrorEstimate]) -> ErrorEstimate | None:
    """The mean over sets of images, no more certain than each; None of none.

    >>> one, two = (Interval(value=v, low=v - 1, high=v + 1) for v in (2.0, 4.0))
    >>> both = [ErrorEstimate(before=x, after=x, change=x, images=30) for x in (one, two)]
    >>> print(mean_estimate(both).change, mean_estimate(both).images)
    3 % (± 1) 60
    """
    if not estimates:
        return None

    def mean(intervals: Sequence[Interval]) -> Interval:
        ends = ("value", "low", "high")
        return Interval(**{end: fmean(getattr(each, end) for each in intervals) for end in ends})

    return ErrorEstimate(
        before=mean([each.before for each in estimates]),
        after=mean([each.after for each in estimates]),
        change=mean([each.change for each in estimates]),
        images=sum(each.images for each in estimates),
    )


def estimate_change(
    before: Evidence,
    after: Evidence,
    *,
    shift: Sequence[float] = (),
    statistics: bool,
) -> Interval | None:
    """How one change of a model changed its error, in percentage points; None where unknown."""
    if not (_tells(before) and _tells(after)):
        return None
    signs = change_signs(before, after, shift=shift, statistics=statistics)
    return _interval(*change_from(signs), -1)


def estimate_level(
    evidence: Evidence, *, shift: Sequence[float] = (), adapted: bool = False
) -> Interval | None:
    """The error of one state alone, None where it cannot be estimated."""
    if not _tells(evidence):
        return None
    return _interval(*level_from(level_signs(evidence, shift=shift, adapted=adapted)), 0)


def _tells(evidence: Evidence) -> bool:
    seen = evidence.confidence.sum() + evidence.probability.sum()
    return bool(torch.isfinite(seen)) and len(evidence) >= ENOUGH and evidence.classes > 1


def _class_entropy(evidence: Evidence) -> float:
    """The entropy of the classes predicted: the logarithm of how many are in use."""
    share = evidence.predicted.bincount(minlength=evidence.classes).double() / len(evidence)
    return float(torch.special.entr(share).sum())


def level_from(signs: Mapping[str, float]) -> tuple[float, float]:
    """The error that the signs of a level speak of, as a share, and its standard deviation."""
    return _guessed("level", signs)


def change_from(signs: Mapping[str, float]) -> tuple[float, float]:
    """The change of the error as a share, and its standard deviation."""
    return _guessed("change", signs)


def _guessed(kind: str, signs: Mapping[str, float]) -> tuple[float, float]:
    model = fitted()[kind]
    value, *deviations = guess(model.forest, signs)
    return value, model.deviation(*deviations)


def guess(forest: Forest, signs: Mapping[str, float]) -> tuple[float, float, float, float]:
    """What a forest makes of signs, and the three deviations of :class:`Fitted`.

    A change cannot be larger than the share of predictions that changed, which is what its forest
    gives a part of; no error is thought to be larger than that of chance.
    """
    value, trees = forest.predict(signs)
    n = math.exp(signs["images"])
    if "changed" not in signs:
        value = min(value, 1 - math.exp(-signs["classes"]))
        most = math.sqrt(max(value * (1 - value), 0.02))
        return value, trees, most, most / math.sqrt(n)
    changed = signs["changed"]
    return changed * value, changed * trees, changed, math.sqrt((changed + 1 / n) / n)


def _interval(share: float, spread: float, lowest: int) -> Interval:
    low, middle, high = (
        100 * max(lowest, min(1.0, share + part * _Z * spread)) for part in (-1, 0, 1)
    )
    return Interval(value=middle, low=low, high=high)
