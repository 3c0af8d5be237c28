"""Runs sorted by their settings: the options, but for the number of epochs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from acclimate.experiments._cells import mean_of_means
from acclimate.experiments._selection_states import Place, State, place_of, states_of
from acclimate.experiments.job import Job, Options
from acclimate.experiments.result import Result
from acclimate.words import option_words

__all__ = ["Setting", "mean_error", "settings_of"]

_EPOCHS = "epochs"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Options, and what the runs with them came to.

    Attributes:
        options: of the recipe, without the number of epochs.
        lr: the learning rate, the recipe's own where the options have none; None without results.
        expected: the places there should be a run for.
        runs: the states after each epoch, by place.
        reasons: why there is no run for the other places, each reason once.
    """

    options: Options
    lr: float | None
    expected: frozenset[Place]
    runs: Mapping[Place, Mapping[int, State]]
    reasons: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether there is a run for every place."""
        return len(self.runs) == len(self.expected)

    @property
    def epochs(self) -> list[int]:
        """The numbers of epochs that all runs reach; 0 alone where nothing is learnt."""
        reached = [max(states) for states in self.runs.values()]
        least = min(reached, default=0)
        learnt = list(range(1, least + 1))
        return learnt or ([0] if reached and not max(reached) else [])

    @property
    def words(self) -> str:
        """The options as the command line has them."""
        return option_words(self.options, between=" ", none="as it is")

    @property
    def missing(self) -> str:
        """How much is missing and why; empty where nothing is."""
        if self.complete:
            return ""
        gone = len(self.expected) - len(self.runs)
        return f"{gone} of {len(self.expected)} runs are missing: {'; '.join(self.reasons)}"

    def state(self, place: Place, epochs: int) -> State | None:
        """The state of a run after so many epochs."""
        return self.runs.get(place, {}).get(epochs)

    def places(self, on: Collection[str] | None = None) -> list[Place]:
        """Where there should be runs; ``on`` some corruptions or domains alone."""
        return sorted(each for each in self.expected if on is None or each.corruption in on)

    def error(self, epochs: int, *, on: Collection[str] | None = None) -> float | None:
        """The mean over corruptions of the mean over severities, averaged over seeds."""
        errors = {
            place: state.error
            for place in self.places(on)
            if (state := self.state(place, epochs)) is not None and state.error is not None
        }
        return mean_error(errors)


def mean_error(errors: Mapping[Place, float]) -> float | None:
    """Severities first, then corruptions, each of which counts the same, then seeds."""
    by_seed: dict[int, dict[str | None, dict[int | None, float]]] = {}
    for place, error in errors.items():
        shifts = by_seed.setdefault(place.seed, {})
        shifts.setdefault(place.corruption, {})[place.severity] = error
    means = [mean for shifts in by_seed.values() if (mean := mean_of_means(shifts)) is not None]
    return fsum(means) / len(means) if means else None


def settings_of(jobs: Sequence[Job], results: Mapping[str, Result]) -> list[Setting]:
    """The settings of jobs of one model and recipe, in their order.

    Where runs differ in their number of epochs alone, the longest one stands for all.
    """
    sorted_in: dict[Options, list[Job]] = {}
    for job in jobs:
        options = tuple((key, value) for key, value in job.options if key != _EPOCHS)
        sorted_in.setdefault(options, []).append(job)
    return [_setting(options, each, results) for options, each in sorted_in.items()]


def _setting(options: Options, jobs: Sequence[Job], results: Mapping[str, Result]) -> Setting:
    runs: dict[Place, dict[int, State]] = {}
    reasons: dict[str, None] = {}  # a set that keeps its order
    rate = dict(options).get("optimizer.lr")
    lr = float(rate) if isinstance(rate, int | float) else None
    for job in jobs:
        result = results.get(job.key)
        if result is None or result.status != "done":
            reasons["not run yet" if result is None else result.reason] = None
            continue
        if result.record.get("score") == "end":
            reasons["scored at its end alone (--score end): choose in a store of its own"] = None
            continue
        if lr is None:
            lr = ((result.record.get("recipe") or {}).get("optimizer") or {}).get("lr")
        states, place = states_of(result), place_of(job)
        if place not in runs or max(states) > max(runs[place]):
            runs[place] = states
    expected = frozenset(map(place_of, jobs))
    return Setting(options=options, lr=lr, expected=expected, runs=runs, reasons=tuple(reasons))
