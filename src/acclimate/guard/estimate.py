"""The error of a model on images without labels, estimated from how it treats views of them.

Three small models do it, fitted on the dev half of the bank of cases
(``python benchmarks/bank.py fit``, which writes ``estimate.json``): one for the level of the error,
and one each for how new statistics and how learning change it. A change shows on the images whose
prediction changed: the prediction that is more probable, and that stays when the image is mirrored
or cut a little tighter, is more often right. Intervals are as wide as the residuals on networks
that were left out of the fit, plus what so many images can tell.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from statistics import NormalDist, fmean
from typing import Any, Literal

import torch
from torch import Tensor

from acclimate.guard.evidence import VIEWS, Evidence

__all__ = [
    "COVERAGE",
    "ENOUGH",
    "LATE",
    "Change",
    "ErrorEstimate",
    "Interval",
    "Linear",
    "change_signs",
    "error_shown",
    "estimate_change",
    "estimate_error",
    "estimate_from",
    "estimate_level",
    "fitted",
    "lateness",
    "level_signs",
    "log_odds",
    "mean_estimate",
    "rise",
    "telling_views",
    "with_products",
]

ENOUGH = 30
"""Below this many images nothing is estimated."""

COVERAGE = 0.9
"""The share of cases whose true error should lie in the interval."""

LATE = 0.6
"""Lateness above this speaks of a few of the classes rather than of another appearance."""

MEANINGLESS = 0.3
"""A view that changes so many more of the predictions than another changes the class itself."""

Change = Literal["statistics", "learning"]
"""What changes a model's error: new statistics, or learning after."""

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


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Weights of signs by name, and how far the results lay off on networks left out of the fit."""

    weights: Mapping[str, float]
    spread: float

    def value(self, signs: Mapping[str, float]) -> float:
        """The weighted sum; ``constant`` is a sign of its own."""
        return sum(weight * signs[name] for name, weight in self.weights.items())


@cache
def fitted() -> dict[str, Linear]:
    """The weights that are stored."""
    stored = json.loads((files("acclimate.guard") / "estimate.json").read_text("utf-8"))
    return {name: Linear(**stored[name]) for name in ("level", "statistics", "learning")}


def level_signs(evidence: Evidence, *, views: Sequence[int] | None = None) -> dict[str, float]:
    """What shows of the error of one state.

    In log-odds: ``stays`` and ``mirrored``, how often the class stays in mild views and in the
    mirrored one; ``confidence``, its mean; ``largest``, the share of the class predicted most: a
    network that breaks down predicts one class. ``entropy`` is that of the probabilities.
    """
    n, used = len(evidence), list(views or telling_views(evidence))
    each = evidence.stays.float().mean(dim=0)
    stays = log_odds(float(each[used].mean()), n)
    mirrored = list(VIEWS).index("mirrored")
    confidence = log_odds(float(evidence.confidence.mean()), n)
    return {
        "constant": 1.0,
        "images": float(n),
        "stays": stays,
        "mirrored": log_odds(float(each[mirrored]), n) if mirrored in used else stays,
        "confidence": confidence,
        "stays x confidence": stays * confidence,
        "largest": log_odds(int(evidence.predicted.bincount().max()) / n, n),
        "entropy": float(evidence.entropy.mean()),
    }


def change_signs(
    before: Evidence, after: Evidence, *, shift: Sequence[float] = ()
) -> dict[str, float]:
    """What shows of the change of the error, on the images whose prediction changed.

    ``changed`` is their share of all ``images``. Of the earlier and the later prediction for these,
    ``certainty`` is how much more probable the earlier one was, ``steadiness`` how much more so it
    stayed in views of the image. ``spread`` and ``growth`` are how the classes in use changed, as a
    part of all and as a ratio. ``late`` is how much further from the source's the statistics
    (``shift``, layer by layer) of the last layers are than those of the middle: an appearance shows
    early, a mix of classes late. ``error`` is that of the earlier state, as its level shows it, and
    ``rise`` how much higher the later one's is.
    """
    changed = before.predicted != after.predicted
    m, n = int(changed.sum()), len(before)
    views = telling_views(before, after)

    def mean(of: Tensor) -> float:
        return float(of[changed].float().sum()) / (m + 2)  # drawn to zero where few changed

    stays = before.probability[:, views] - after.probability[:, views]
    error, later = (error_shown(level_signs(each))[0] for each in (before, after))
    used, most = [_class_entropy(each) for each in (before, after)], max(2, min(n, before.classes))
    return with_products(
        {
            "constant": 1.0,
            "changed": m / n,
            "images": float(n),
            "certainty": mean(before.confidence - after.confidence),
            "steadiness": mean(stays.mean(dim=1)),
            "spread": (used[1] - used[0]) / math.log(most),
            "growth": used[1] - used[0],
            "late": lateness(shift),
            "confidence": float(before.confidence.mean()),
            "error": error,
            "rise": rise(error, later, changed=m, images=n),
        }
    )


def with_products(signs: Mapping[str, float]) -> dict[str, float]:
    """Signs that tell more together: other classes in use, from a model that is sure, and late.

    >>> with_products({"late": 2.0, "spread": 0.5, "confidence": 0.9})["late x spread"]
    1.0
    """
    pairs = (("late", "spread"), ("late", "confidence"))
    return {**signs, **{f"{one} x {two}": signs[one] * signs[two] for one, two in pairs}}


def rise(error: float, later: float, *, changed: int, images: int) -> float:
    """By how much an error grew, for each prediction that changed.

    >>> rise(0.5, 0.25, changed=48, images=100)
    -0.5
    """
    return (later - error) * images / (changed + 2)


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
    changes: dict[Change, Mapping[str, float]] = {}
    if middle is not None:
        changes["statistics"] = change_signs(before, middle, shift=shift)
    if middle is not after:
        changes["learning"] = change_signs(middle or before, after)
    return estimate_from(level_signs(before), level_signs(after), changes)


def estimate_from(
    before: Mapping[str, float],
    after: Mapping[str, float],
    changes: Mapping[Change, Mapping[str, float]],
) -> ErrorEstimate:
    """The same, from the signs of both levels and of what changed between them."""
    found = [_change(kind, signs) for kind, signs in changes.items()]
    c, c_spread = sum(each for each, _ in found), math.hypot(*(each for _, each in found))
    (b, b_spread), (a, a_spread) = error_shown(before), error_shown(after)
    gap = (a - b - c) / (b_spread**2 + a_spread**2 + c_spread**2)
    return ErrorEstimate(
        before=_interval(b + gap * b_spread**2, b_spread, 0),
        after=_interval(a - gap * a_spread**2, a_spread, 0),
        change=_interval(c + gap * c_spread**2, c_spread, -1),
        images=round(before["images"]),
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
    kind: Change,
    before: Evidence,
    after: Evidence,
    *,
    shift: Sequence[float] = (),
) -> Interval | None:
    """How one change of a model changed its error, in percentage points; None where unknown."""
    if not (_tells(before) and _tells(after)):
        return None
    return _interval(*_change(kind, change_signs(before, after, shift=shift)), -1)


def estimate_level(evidence: Evidence) -> Interval | None:
    """The error of one state alone, None where it cannot be estimated."""
    return _interval(*error_shown(level_signs(evidence)), 0) if _tells(evidence) else None


def _tells(evidence: Evidence) -> bool:
    finite = bool(torch.isfinite(evidence.confidence).all())
    return finite and len(evidence) >= ENOUGH and evidence.classes > 1


def _class_entropy(evidence: Evidence) -> float:
    """The entropy of the classes predicted: the logarithm of how many are in use."""
    share = evidence.predicted.bincount(minlength=evidence.classes).double() / len(evidence)
    return float(torch.special.entr(share).sum())


def error_shown(signs: Mapping[str, float]) -> tuple[float, float]:
    """The error that the signs of a level speak of, as a share, and its standard deviation."""
    model = fitted()["level"]
    error = 1 / (1 + math.exp(-model.value(signs)))
    slope = max(error * (1 - error), 0.02)
    return error, math.sqrt((model.spread * slope) ** 2 + slope / signs["images"])


def _change(kind: Change, signs: Mapping[str, float]) -> tuple[float, float]:
    """The change of the error as a share, and its standard deviation.

    It cannot be larger than the share of predictions that changed.
    """
    model, changed, n = fitted()[kind], signs["changed"], signs["images"]
    spread = math.sqrt((model.spread * changed) ** 2 + (changed + 1 / n) / n)
    return changed * math.tanh(model.value(signs)), spread


def _interval(share: float, spread: float, lowest: int) -> Interval:
    low, middle, high = (
        100 * max(lowest, min(1.0, share + part * _Z * spread)) for part in (-1, 0, 1)
    )
    return Interval(value=middle, low=low, high=high)
