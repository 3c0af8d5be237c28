"""The paper's selection: the options with the lowest mean error on the hold-out corruptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Any

from acclimate.bench.job import Job, Options, Value
from acclimate.bench.record import Record, Result, Signals
from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError
from acclimate.guard.guard import Guard
from acclimate.metrics.mean import by_seeds, mean_over_seeds
from acclimate.text import DEFAULTS, option_words

__all__ = [
    "DEV",
    "LABEL_FREE",
    "LEAVE_ONE_OUT",
    "LEGEND",
    "ORACLE",
    "Choice",
    "Place",
    "Searched",
    "Sensitivity",
    "State",
    "check_leave_one_out",
    "check_selection",
    "choose",
    "choose_from",
    "choose_label_free",
    "entry",
    "jobs_by_recipe",
    "label_free_entry",
    "leave_one_out",
    "left_out",
    "mean_error",
    "place_of",
    "refused",
    "sensitivity",
    "settings_of",
    "states_of",
]


@dataclass(frozen=True, kw_only=True, order=True)
class Place:
    """What a run was on: images, and the seed.

    Attributes:
        words: the images, ``cifar10 cifar/spatter:3`` or ``camelyon17 val``.
        corruption: the same without the severity, which is averaged over first.
        severity: 1 to 5; 0 where there are none.
        seed: of the adaptation.
    """

    words: str
    corruption: str
    severity: int
    seed: int


def place_of(job: Job) -> Place:
    """Where a job runs.

    >>> place_of(Job(model="m", dataset="cifar10", recipe="ent", shift="cifar/spatter:3")).words
    'cifar10 cifar/spatter:3'
    """
    words = " ".join(word for word in (job.dataset, job.split, job.shift) if word)
    severity = job.severity or 0
    return Place(
        words=words,
        corruption=words.replace(f":{severity}", "") if severity else words,
        severity=severity,
        seed=job.seed,
    )


@dataclass(frozen=True, kw_only=True)
class State:
    """The model after some epochs.

    Attributes:
        error: in percent; None where it was not measured.
        score: the guard's, without labels; larger is better.
        drift: of the learning parameters, relative to their norm; None where it is not finite.
        collapsed: fewer than half of the classes are in use that were at the start.
        diverged: parameters or predictions are not finite.
    """

    error: float | None
    score: float | None = None
    drift: float | None = None
    collapsed: bool = False
    diverged: bool = False


def states_of(result: Result) -> dict[int, State]:
    """The states after 1, 2, … epochs; at 0 the model before anything is learnt.

    Runs of one to n epochs are the first n epochs of a longer one: nothing depends on how many
    there are going to be.

    >>> job = Job(model="m", dataset="mnist", recipe="ent")
    >>> states = states_of(Result(job=job, record={"errors": {"after_epoch": [9.0, 8.0]}}))
    >>> states[2].error, sorted(states)
    (8.0, [0, 1, 2])
    """
    record = result.record
    errors = record.errors
    if not errors.after_epoch:  # nothing is learnt, and the model returned is all there is
        return {0: State(error=errors.final)}
    found = {0: State(error=errors.start)}
    start = record.label_free.start.diversity
    for place, error in enumerate(errors.after_epoch):
        found[place + 1] = _state(record, place, error, start)
    return found


def _state(record: Record, place: int, error: float | None, start: float | None) -> State:
    seen: Signals = _at(record.label_free.after_epoch, place) or Signals()
    drift = _at(record.drift, place)
    # A record is plain: what was not finite is None in it.
    infinite = place < len(record.drift) and drift is None
    classes = seen.diversity
    collapsed = classes is not None and start is not None and classes < Guard.min_diversity * start
    return State(
        error=error,
        score=_at(record.scores, place),
        drift=drift,
        collapsed=collapsed,
        diverged=infinite or seen.diverged or error is None,
    )


def _at(values: Any, place: int) -> Any:
    return values[place] if values and place < len(values) else None


_EPOCHS = "epochs"


@dataclass(frozen=True, kw_only=True)
class Searched:
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
    found = ((place.seed, place.corruption, place.severity, e) for place, e in errors.items())
    return mean_over_seeds(by_seeds(found))


def settings_of(jobs: Sequence[Job], results: Mapping[str, Result]) -> list[Searched]:
    """The settings of jobs of one model and recipe, in their order.

    Where runs differ in their number of epochs alone, the longest one stands for all.
    """
    sorted_in: dict[Options, list[Job]] = {}
    for job in jobs:
        options = tuple((key, value) for key, value in job.options if key != _EPOCHS)
        sorted_in.setdefault(options, []).append(job)
    return [_setting(options, each, results) for options, each in sorted_in.items()]


def _setting(options: Options, jobs: Sequence[Job], results: Mapping[str, Result]) -> Searched:
    runs: dict[Place, dict[int, State]] = {}
    reasons: dict[str, None] = {}  # a set that keeps its order
    rate = dict(options).get("optimizer.lr")
    lr = float(rate) if isinstance(rate, int | float) else None
    for job in jobs:
        result = results.get(job.key)
        if result is None or result.status != "done":
            reasons["not run yet" if result is None else result.reason] = None
            continue
        if result.record.score == "end":
            reasons["scored at its end alone (--score end): choose in a store of its own"] = None
            continue
        if lr is None:
            lr = result.record.rate
        states, place = states_of(result), place_of(job)
        if place not in runs or max(states) > max(runs[place]):
            runs[place] = states
    expected = frozenset(map(place_of, jobs))
    return Searched(options=options, lr=lr, expected=expected, runs=runs, reasons=tuple(reasons))


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
        return option_words(self.options.items(), between=" ", none=DEFAULTS)


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    setting: Searched
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


def choose_from(
    settings: Sequence[Searched], *, on: Collection[str] | None = None
) -> Choice | None:
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


def leave_one_out(settings: Sequence[Searched]) -> dict[str, Choice]:
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
    settings: Sequence[Searched],
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


def options_with(setting: Searched, epochs: int) -> dict[str, Value]:
    """The options of a setting, with a number of epochs; 0 where nothing is learnt."""
    return {**dict(setting.options), **({"epochs": epochs} if epochs else {})}


def _candidates(setting: Searched, *, on: Collection[str] | None) -> list[_Candidate]:
    found = []
    for epochs in setting.epochs:
        states = [setting.state(place, epochs) for place in setting.places(on)]
        whole = all(s is not None and s.error is not None and not s.diverged for s in states)
        error = setting.error(epochs, on=on)
        if whole and error is not None:
            found.append(_Candidate(setting=setting, epochs=epochs, error=error))
    return found


LABEL_FREE_RULE = (
    "for each shift the highest agreement with the source model's predictions among states that "
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

    setting: Searched
    epochs: int
    states: dict[Place, State]

    @property
    def score(self) -> float:
        return fsum(state.score or 0.0 for state in self.states.values()) / len(self.states)

    @property
    def within(self) -> bool:
        drifts = [state.drift for state in self.states.values()]
        return all(drift is not None and drift <= Guard.max_drift for drift in drifts)


def choose_label_free(settings: Sequence[Searched]) -> LabelFree:
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


def _seen(setting: Searched, words: str) -> list[_Seen]:
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


_RATE = "optimizer.lr"
LEGEND = (
    "* chosen; † collapsed somewhere: fewer than half of the classes in use; div: diverged; "
    "epoch 0: before learning"
)


@dataclass(frozen=True, kw_only=True)
class SensitivityCell:
    """A mean error, and what happened to the runs behind it.

    Attributes:
        error: in percent, over what is there; None where nothing is.
        missing: how many runs are not there.
        collapsed: in how many classes were no longer predicted.
        diverged: in how many something was not finite.
        chosen: whether these are the chosen options.
    """

    error: float | None
    missing: int = 0
    collapsed: int = 0
    diverged: int = 0
    chosen: bool = False

    def __str__(self) -> str:
        if self.diverged:
            return "div"
        if self.error is None:
            return "-"
        gaps = f" ({self.missing} missing)" if self.missing else ""
        return f"{self.error:.1f}{'†' * (self.collapsed > 0)}{'*' * self.chosen}{gaps}"


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Mean errors by epoch and learning rate, where all other options are the same.

    Attributes:
        options: the others.
        rates: the columns, smallest first; None where the recipe's own was taken.
        epochs: the rows.
        cells: by epoch and rate.
    """

    options: Options
    rates: tuple[float | None, ...]
    epochs: tuple[int, ...]
    cells: dict[tuple[int, float | None], SensitivityCell]

    @property
    def rows(self) -> list[list[str]]:
        """As a table shows it: the epoch, and a cell for each rate."""
        return [
            [str(epoch), *(str(self.cells.get((epoch, rate), "-")) for rate in self.rates)]
            for epoch in self.epochs
        ]

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return ["epoch", *("lr " + ("?" if r is None else f"{r:g}") for r in self.rates)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        cells = [
            {"epochs": epoch, "lr": rate, **vars(cell)}
            for (epoch, rate), cell in self.cells.items()
        ]
        return {"options": dict(self.options), "cells": cells}


def sensitivity(settings: Sequence[Searched], choice: Choice | None = None) -> list[Sensitivity]:
    """A table for each combination of the options other than learning rate and epochs."""
    sorted_in: dict[Options, list[Searched]] = {}
    for setting in settings:
        others = tuple(pair for pair in setting.options if pair[0] != _RATE)
        sorted_in.setdefault(others, []).append(setting)
    return [_table(options, each, choice) for options, each in sorted_in.items()]


def _table(options: Options, settings: Sequence[Searched], choice: Choice | None) -> Sensitivity:
    cells: dict[tuple[int, float | None], SensitivityCell] = {}
    for setting in settings:
        most = max((max(states) for states in setting.runs.values()), default=0)
        for epoch in range(most + 1):
            cells[epoch, setting.lr] = _cell(setting, epoch, choice)
    rates = sorted({setting.lr for setting in settings}, key=lambda rate: rate or 0.0)
    return Sensitivity(
        options=options,
        rates=tuple(rates),
        epochs=tuple(sorted({epoch for epoch, _ in cells})),
        cells=cells,
    )


def _cell(setting: Searched, epoch: int, choice: Choice | None) -> SensitivityCell:
    states = [state for p in setting.places() if (state := setting.state(p, epoch)) is not None]
    is_choice = choice is not None and options_with(setting, epoch) == choice.options
    return SensitivityCell(
        error=setting.error(epoch),
        missing=len(setting.expected) - len(states),
        collapsed=sum(state.collapsed for state in states),
        diverged=sum(state.diverged for state in states),
        chosen=is_choice and (epoch > 0 or setting.epochs == [0]),
    )


DEV = "dev"
ORACLE = "oracle: chosen on the test data"
LEAVE_ONE_OUT = "leave-one-out: chosen for each domain on the test data of the others"
LABEL_FREE = "label-free: chosen for each shift by the guard's score"


def entry(choice: Choice, settings: Sequence[Searched], *, oracle: bool = False) -> dict[str, Any]:
    """One choice for all images."""
    return {
        **_plain(choice, error="test_error" if oracle else "dev_error"),
        "rule": choice.rule,
        "selection": ORACLE if oracle else DEV,
        **_about(settings),
    }


def left_out(choices: Mapping[str, Choice], settings: Sequence[Searched]) -> dict[str, Any]:
    """A choice for each domain, made on the others; ``error`` is on the domains themselves."""
    errors = [each.measured["error"] for each in choices.values()]
    known = [error for error in errors if error is not None]
    return {
        "by_shift": {
            name: {**_plain(each, error="dev_error"), **each.measured}
            for name, each in choices.items()
        },
        "error": fsum(known) / len(known) if known and len(known) == len(errors) else None,
        "rule": next(iter(choices.values())).rule,
        "selection": LEAVE_ONE_OUT,
        **_about(settings),
    }


def label_free_entry(found: LabelFree, settings: Sequence[Searched]) -> dict[str, Any]:
    """A choice for each shift, and its regret against the one that labels make."""
    labelled = found.labelled
    return {
        "by_shift": {
            name: {**_plain(each, error="error"), **each.measured}
            for name, each in found.by_shift.items()
        },
        "error": found.error,
        "regret": found.regret,
        "labelled": None if labelled is None else _plain(labelled, error="error"),
        "rule": next((each.rule for each in found.by_shift.values()), ""),
        "selection": LABEL_FREE,
        **_about(settings),
    }


def _plain(choice: Choice, *, error: str) -> dict[str, Any]:
    return {
        "options": dict(choice.options),
        error: choice.error,
        "chosen_on": list(choice.chosen_on),
        "candidates": choice.candidates,
        "alike": choice.alike,
    }


def _about(settings: Sequence[Searched]) -> dict[str, Any]:
    seeds = sorted({place.seed for setting in settings for place in setting.expected})
    left = [each for each in settings if not each.complete]
    return {
        "searched": _searched([each for each in settings if each.complete]),
        "seeds": seeds,
        "incomplete": [{"options": dict(s.options), "why": s.missing} for s in left],
    }


def _searched(settings: Sequence[Searched]) -> dict[str, list[Value]]:
    """The values of each option that could have been chosen, and of what every recipe has."""
    found: dict[str, dict[Value, None]] = {}
    for setting in settings:
        epochs = [("epochs", number) for number in setting.epochs if number]
        rate = [("optimizer.lr", setting.lr)] if setting.lr is not None else []
        for name, value in (*setting.options, *rate, *epochs):
            found.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in found.items()}


_VALIDATION = "val"
_ONLY_TESTS = (
    "imagenet-a", "imagenet-d", "imagenet-r", "imagenet-sketch", "imagenetv2", "cifar10.1",
)  # fmt: skip
"""Data sets that are there to report on; a corruption on top of them leaves their labels."""


def refused(job: Job) -> str | None:
    """Why nothing may be chosen on the images of a job; None where it may.

    >>> refused(Job(model="m", dataset="cifar10", recipe="ent", shift="cifar/spatter:1")) is None
    True
    >>> refused(Job(model="m", dataset="cifar10", recipe="ent", shift="cifar/fog:1"))
    'fog of cifar10 is a test corruption; choose on dev: --shifts cifar/dev'
    """
    data, splits = job.dataset, find_dataset(job.dataset).splits
    if _VALIDATION in splits:  # WILDS: other hospitals, places or batches than those of the test
        if job.split == _VALIDATION:
            return None
        return (
            f"{data} has a validation set from other domains to choose on, got its split "
            f"{job.split or splits[0]!r}; --split {_VALIDATION}"
        )
    if data in _ONLY_TESTS:
        more = ", or --leave-one-out" if find_dataset(data).shift_kind == "domain" else ""
        return (
            f"all of {data} is for reporting, and none of it for choosing; choose on "
            f"--datasets imagenet-c --shifts dev (CIFAR: cifar10-c), as the paper does{more}"
        )
    if job.group == "dev":
        return None
    dev = "dev" if job.preset is None and job.shift is not None else f"{job.preset or 'cifar'}/dev"
    if job.group == "test":
        what = f"{job.corruption} of {data} is a test corruption"
    elif job.shift is None:
        what = f"{data} without a shift is no hold-out set"
    else:
        what = f"{job.shift} of {data} is none of the hold-out corruptions"
    return f"{what}; choose on dev: --shifts {dev}"


def check_selection(jobs: Sequence[Job]) -> None:
    """Refuse to choose on images that results are reported on."""
    reasons = list(dict.fromkeys(reason for job in jobs if (reason := refused(job)) is not None))
    if reasons:
        more = f"\n  … and {len(reasons) - 3} more like this" if len(reasons) > 3 else ""
        listed = "".join(f"\n  - {reason}" for reason in reasons[:3])
        raise AcclimateError(
            "errors on the images that options were chosen on are too good to report, and these "
            f"are reported on:{listed}{more}\n--selection oracle chooses on them all the same, and "
            "marks the choice"
        )


def check_leave_one_out(jobs: Sequence[Job]) -> None:
    """Refuse to leave one out of what are not the domains of a data set, or of fewer than two."""
    for name in dict.fromkeys(job.dataset for job in jobs):
        kind, shifts = find_dataset(name).shift_kind, {j.shift for j in jobs if j.dataset == name}
        if kind != "domain" or len(shifts) < 2:
            raise AcclimateError(
                "expected two or more domains of one data set (imagenet-d) to leave each out in "
                f"turn, got {len(shifts)} {kind}(s) of {name}"
            )
    if len({job.dataset for job in jobs}) > 1:
        raise AcclimateError("expected one data set to leave each domain of it out in turn")
