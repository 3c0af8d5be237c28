"""The paper's selection: the options with the lowest mean error on the hold-out corruptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from acclimate.experiments._selection_settings import Setting, settings_of
from acclimate.experiments.job import Job, Value
from acclimate.experiments.result import Result
from acclimate.words import AS_IT_IS, option_words

__all__ = [
    "RULE",
    "Choice",
    "choose",
    "choose_from",
    "error_of",
    "jobs_by_recipe",
    "leave_one_out",
    "options_with",
]

RULE = "lowest mean error over corruptions of the mean over severities; ties: smaller lr × epochs"

_DIGITS = 9  # of a mean error: what differs less is a tie


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was chosen for a model and a recipe, and how.

    Attributes:
        options: changes to the recipe, with the number of epochs.
        error: in percent, the mean on what was chosen on.
        chosen_on: the images, ``cifar10 cifar/spatter:3``.
        candidates: how many settings × epochs could have been chosen.
        alike: how many of them have that very error.
        rule: what was best, in words.
        measured: further numbers: the error on a domain that was left out, …
    """

    options: Mapping[str, Value]
    error: float
    chosen_on: tuple[str, ...]
    candidates: int
    alike: int = 1
    rule: str = RULE
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The options as the command line has them."""
        return option_words(self.options.items(), between=" ", none=AS_IT_IS)


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    setting: Setting
    epochs: int
    error: float

    @property
    def rank(self) -> tuple[float, float]:
        return round(self.error, _DIGITS), (self.setting.lr or 0.0) * self.epochs


def jobs_by_recipe(jobs: Sequence[Job]) -> dict[tuple[str, str], list[Job]]:
    """Jobs by model and recipe: each pair has a choice of its own."""
    found: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        found.setdefault((job.model, job.recipe), []).append(job)
    return found


def choose(jobs: Sequence[Job], results: Mapping[str, Result]) -> Choice | None:
    """The best options of one model and recipe, None where no setting is complete.

    Every run tells of all smaller numbers of epochs, so that these are chosen too. Settings that
    lack a run are not chosen: a mean over fewer shifts is a mean over others. Neither are those
    that diverged somewhere.

    Args:
        jobs: all that should have been run.
        results: of the jobs, by key; failed ones and those of other jobs may be among them.

    >>> def job(lr, shift):
    ...     return Job.of(model="m", dataset="cifar10", recipe="ent", shift=shift,
    ...                   options={"optimizer.lr": lr, "epochs": 2})
    >>> errors = {(1e-3, "cifar/spatter:1"): [20.0, 15.0], (1e-2, "cifar/spatter:1"): [16.0, 40.0]}
    >>> jobs = [job(*pair) for pair in errors]
    >>> results = {each.key: Result(job=each, record={"errors": {"after_epoch": after}})
    ...            for each, after in zip(jobs, errors.values())}
    >>> choice = choose(jobs, results)
    >>> choice.words, choice.error, choice.candidates
    ('optimizer.lr=0.001 epochs=2', 15.0, 4)
    """
    return choose_from(settings_of(jobs, results))


def choose_from(settings: Sequence[Setting], *, on: Collection[str] | None = None) -> Choice | None:
    """`choose` for runs that are sorted already; ``on`` some corruptions or domains alone."""
    found = [each for setting in settings for each in _candidates(setting, on=on)]
    if not found:
        return None
    best = min(found, key=lambda each: each.rank)
    return Choice(
        options=options_with(best.setting, best.epochs),
        error=best.error,
        chosen_on=tuple(dict.fromkeys(place.words for place in best.setting.places(on))),
        candidates=len(found),
        alike=sum(each.rank[0] == best.rank[0] for each in found),
    )


def leave_one_out(settings: Sequence[Setting]) -> dict[str, Choice]:
    """For each domain, by its images, what is best on all others (the paper's Appendix D).

    ``measured["error"]`` is the error on the domain itself, which had no say.
    """
    domains = dict.fromkeys(p.corruption for setting in settings for p in setting.places())
    found: dict[str, Choice] = {}
    for domain in domains:
        choice = choose_from(settings, on=[other for other in domains if other != domain])
        if choice is not None:
            error = error_of(settings, choice.options, on=[domain])
            found[domain] = replace(choice, measured={"error": error})
    return found


def error_of(
    settings: Sequence[Setting],
    options: Mapping[str, Value],
    *,
    on: Collection[str] | None = None,
) -> float | None:
    """The mean error of some options; None where there are no runs with them."""
    for setting in settings:
        for epochs in setting.epochs:
            if options_with(setting, epochs) == options:
                return setting.error(epochs, on=on)
    return None


def options_with(setting: Setting, epochs: int) -> dict[str, Value]:
    """The options of a setting, with a number of epochs; 0 where nothing is learnt."""
    return {**dict(setting.options), **({"epochs": epochs} if epochs else {})}


def _candidates(setting: Setting, *, on: Collection[str] | None) -> list[_Candidate]:
    found = []
    for epochs in setting.epochs:
        states = [setting.state(place, epochs) for place in setting.places(on)]
        whole = all(s is not None and s.error is not None and not s.diverged for s in states)
        error = setting.error(epochs, on=on)
        if whole and error is not None:
            found.append(_Candidate(setting=setting, epochs=epochs, error=error))
    return found
