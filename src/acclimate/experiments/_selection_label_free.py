"""Choosing without labels: for each shift by the guard's score, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from acclimate.experiments._selection_settings import Setting, mean_error
from acclimate.experiments._selection_states import Place, State
from acclimate.experiments.job import Value
from acclimate.experiments.selection import Choice, choose_from, options_with
from acclimate.guard import Guard

__all__ = ["LABEL_FREE_RULE", "LabelFree", "choose_label_free"]

LABEL_FREE_RULE = (
    "for each shift the highest agreement with the source model's answers among states that "
    f"drifted by at most {Guard.max_drift:g}; ties: smaller lr × epochs"
)


@dataclass(frozen=True, kw_only=True)
class LabelFree:
    """Choices without labels, and how they compare with one choice that had them.

    Attributes:
        by_shift: what was chosen for each shift, by the images; ``error`` is the error on it.
        error: the mean over shifts of what was chosen.
        labelled: the one choice for all shifts that labels make; None where none is complete.
    """

    by_shift: dict[str, Choice]
    error: float | None
    labelled: Choice | None

    @property
    def regret(self) -> float | None:
        """How many points more the error is than with labels; below 0 it is less.

        A choice for each shift may well beat one for all.
        """
        if self.error is None or self.labelled is None:
            return None
        return self.error - self.labelled.error


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """A setting after some epochs, on all seeds of a shift."""

    setting: Setting
    epochs: int
    states: dict[Place, State]

    @property
    def score(self) -> float:
        return fsum(state.score or 0.0 for state in self.states.values()) / len(self.states)

    @property
    def within(self) -> bool:
        drifts = [state.drift for state in self.states.values()]
        return all(drift is not None and drift <= Guard.max_drift for drift in drifts)


def choose_label_free(settings: Sequence[Setting]) -> LabelFree:
    """Choose the setting and epochs of each shift by the score that ``--keep best`` goes by."""
    by_shift: dict[str, Choice] = {}
    errors: dict[Place, float] = {}
    words = dict.fromkeys(place.words for setting in settings for place in setting.places())
    for name in words:
        found = [seen for setting in settings for seen in _seen(setting, name)]
        allowed = [seen for seen in found if seen.within]
        if not allowed:
            continue  # all of them went too far; the shift is listed as one without a choice
        best = max(allowed, key=lambda seen: (seen.score, -(seen.setting.lr or 0.0) * seen.epochs))
        here = {p: s.error for p, s in best.states.items() if s.error is not None}
        errors |= here
        by_shift[name] = Choice(
            options=_options(best),
            error=mean_error(here) or 0.0,
            chosen_on=(name,),
            candidates=len(allowed),
            alike=sum(seen.score == best.score for seen in allowed),
            rule=LABEL_FREE_RULE,
            measured={"score": best.score},
        )
    whole = len(by_shift) == len(words)
    return LabelFree(
        by_shift=by_shift,
        error=mean_error(errors) if whole else None,
        labelled=choose_from(settings),
    )


def _seen(setting: Setting, words: str) -> list[_Seen]:
    places = [place for place in setting.places() if place.words == words]
    found = []
    for epochs in setting.epochs:
        states = {p: s for p in places if (s := setting.state(p, epochs)) is not None}
        scored = all(s.score is not None and not s.diverged for s in states.values())
        if epochs and scored and len(states) == len(places):
            found.append(_Seen(setting=setting, epochs=epochs, states=states))
    return found


def _options(seen: _Seen) -> dict[str, Value]:
    return options_with(seen.setting, seen.epochs)
