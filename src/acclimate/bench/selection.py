"""The paper's selection: the options with the lowest mean error on the hold-out corruptions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from acclimate.bench.job import Job, Options, Value
from acclimate.bench.record import Result, Signals
from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError
from acclimate.guard.guard import Guard
from acclimate.metrics.mean import by_seeds, mean, mean_over_seeds
from acclimate.text import DEFAULTS, option_words

__all__ = [
    "DEV",
    "LABEL_FREE",
    "LEAVE_ONE_OUT",
    "LEGEND",
    "ORACLE",
    "Choice",
    "Entry",
    "Place",
    "Searched",
    "Sensitivity",
    "Way",
    "check_leave_one_out",
    "check_selection",
    "choose",
    "choose_from",
    "choose_label_free",
    "entry_of",
    "jobs_by_recipe",
    "leave_one_out",
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
    if not record.errors.after_epoch:  # nothing is learnt, and the model returned is all there is
        return {0: State(error=record.errors.final)}
    found = {0: State(error=record.errors.start)}
    start = record.label_free.start.diversity
    for epoch, error in enumerate(record.errors.after_epoch, 1):
        # Older records, and those of a stream, have fewer of these than errors.
        seen = next(iter(record.label_free.after_epoch[epoch - 1 : epoch]), Signals())
        drift = record.drift[epoch - 1 : epoch]
        least, classes = Guard.min_diversity * (start or 0.0), seen.diversity
        found[epoch] = State(
            error=error,
            score=next(iter(record.scores[epoch - 1 : epoch]), None),
            drift=next(iter(drift), None),
            collapsed=classes is not None and classes < least,
            # A record is plain: what was not finite is None in it.
            diverged=drift == (None,) or seen.diverged or error is None,
        )
    return found


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
        learnt = list(range(1, min(reached, default=0) + 1))
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

    def states(self, epochs: int) -> dict[Place, State]:
        """The states after so many epochs, of the runs that reach them."""
        reached = (place for place in sorted(self.expected) if epochs in self.runs.get(place, {}))
        return {place: self.runs[place][epochs] for place in reached}

    def error(self, epochs: int) -> float | None:
        """The mean over corruptions of the mean over severities, averaged over seeds."""
        return _mean_error(self.states(epochs))


def _mean_error(states: Mapping[Place, State]) -> float | None:
    """Severities first, then corruptions, each of which counts the same, then seeds."""
    errors = [(place, state.error) for place, state in states.items()]
    known = ((p.seed, p.corruption, p.severity, e) for p, e in errors if e is not None)
    return mean_over_seeds(by_seeds(known))


def settings_of(jobs: Sequence[Job], results: Mapping[str, Result]) -> list[Searched]:
    """The settings of jobs of one model and recipe, in their order.

    Where runs differ in their number of epochs alone, the longest one stands for all.
    """
    sorted_in: dict[Options, list[Job]] = {}
    for job in jobs:
        options = tuple((key, value) for key, value in job.options if key != "epochs")
        sorted_in.setdefault(options, []).append(job)
    return [_setting(options, each, results) for options, each in sorted_in.items()]


def _setting(options: Options, jobs: Sequence[Job], results: Mapping[str, Result]) -> Searched:
    runs: dict[Place, dict[int, State]] = {}
    reasons: dict[str, None] = {}  # a set that keeps its order
    rate = dict(options).get(_RATE)
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
LABEL_FREE_RULE = (
    "for each shift the highest agreement with the source model's predictions among states that "
    f"drifted by at most {Guard.max_drift:g}; ties: smaller lr × epochs"
)

_RATE = "optimizer.lr"
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
        measured: further numbers: the error on a domain that was left out, …
    """

    options: Mapping[str, Value]
    error: float
    chosen_on: tuple[str, ...]
    candidates: int
    alike: int = 1
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The options as the command line has them."""
        return option_words(self.options.items(), between=" ", none=DEFAULTS)


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """A setting after some epochs, and its states on what is chosen on."""

    setting: Searched
    epochs: int
    states: dict[Place, State]

    @property
    def error(self) -> float:
        return _mean_error(self.states) or 0.0

    @property
    def score(self) -> float:
        return mean([state.score or 0.0 for state in self.states.values()])

    @property
    def moved(self) -> float:
        return (self.setting.lr or 0.0) * self.epochs


def _candidates(
    settings: Sequence[Searched], on: Collection[str] | None, known: Callable[[State], bool]
) -> list[_Candidate]:
    """What has a state, none of which diverged, on all of some images or domains."""
    found = []
    for setting in settings:
        among = {p for p in setting.expected if on is None or p.words in on or p.corruption in on}
        for epochs in setting.epochs:
            states = {p: state for p, state in setting.states(epochs).items() if p in among}
            whole = all(known(state) and not state.diverged for state in states.values())
            if whole and states and len(states) == len(among):
                found.append(_Candidate(setting=setting, epochs=epochs, states=states))
    return found


def _chosen(best: _Candidate, found: Sequence[_Candidate], alike: int, **more: Any) -> Choice:
    return Choice(
        options=_options(best.setting, best.epochs),
        error=best.error,
        chosen_on=tuple(dict.fromkeys(place.words for place in best.states)),
        candidates=len(found),
        alike=alike,
        **more,
    )


def _options(setting: Searched, epochs: int) -> dict[str, Value]:
    """The options of a setting, with a number of epochs; 0 where nothing is learnt."""
    return {**dict(setting.options), **({"epochs": epochs} if epochs else {})}


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
    found = _candidates(settings, on, lambda state: state.error is not None)
    if not found:
        return None
    errors = [round(each.error, _DIGITS) for each in found]
    _, _, first = min((error, found[n].moved, n) for n, error in enumerate(errors))
    return _chosen(found[first], found, alike=errors.count(errors[first]))


def leave_one_out(settings: Sequence[Searched]) -> dict[str, Choice]:
    """For each domain, by its images, what is best on all others (the paper's Appendix D).

    ``measured["error"]`` is the error on the domain itself, which had no say.
    """
    domains = dict.fromkeys(p.corruption for setting in settings for p in sorted(setting.expected))
    found: dict[str, Choice] = {}
    for domain in domains:
        choice = choose_from(settings, on=[other for other in domains if other != domain])
        if choice is not None:
            states = next(
                setting.states(epochs)
                for setting in settings
                for epochs in setting.epochs
                if _options(setting, epochs) == choice.options
            )
            own = {place: state for place, state in states.items() if place.corruption == domain}
            found[domain] = replace(choice, measured={"error": _mean_error(own)})
    return found


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


def _stayed_near(state: State) -> bool:
    scored = state.score is not None
    return scored and state.drift is not None and state.drift <= Guard.max_drift


def choose_label_free(settings: Sequence[Searched]) -> LabelFree:
    """Choose the setting and epochs of each shift by the score that ``--keep best`` goes by."""
    by_shift: dict[str, Choice] = {}
    states: dict[Place, State] = {}
    words = dict.fromkeys(p.words for setting in settings for p in sorted(setting.expected))
    for name in words:
        found = [each for each in _candidates(settings, [name], _stayed_near) if each.epochs]
        if not found:
            continue  # all of them went too far; the shift is listed as one without a choice
        best = max(found, key=lambda each: (each.score, -each.moved))
        states |= best.states
        alike = sum(each.score == best.score for each in found)
        by_shift[name] = _chosen(best, found, alike, measured={"score": best.score})
    return LabelFree(
        by_shift=by_shift,
        error=_mean_error(states) if len(by_shift) == len(words) else None,
        labelled=choose_from(settings),
    )


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
        cells: by epoch and rate; a rate of None is the recipe's own.
    """

    options: Options
    cells: dict[tuple[int, float | None], SensitivityCell]

    @property
    def _rates(self) -> list[float | None]:
        return sorted({rate for _, rate in self.cells}, key=lambda rate: rate or 0.0)

    @property
    def rows(self) -> list[list[str]]:
        """As a table shows it: the epoch, and a cell for each rate."""
        return [
            [str(epoch), *(str(self.cells.get((epoch, rate), "-")) for rate in self._rates)]
            for epoch in sorted({epoch for epoch, _ in self.cells})
        ]

    @property
    def header(self) -> list[str]:
        """The names of the columns."""
        return ["epoch", *("lr " + ("?" if r is None else f"{r:g}") for r in self._rates)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        cells = [
            {"epochs": epoch, "lr": rate, **vars(cell)}
            for (epoch, rate), cell in self.cells.items()
        ]
        return {"options": dict(self.options), "cells": cells}


def sensitivity(
    settings: Sequence[Searched], chosen: Mapping[str, Value] | None = None
) -> list[Sensitivity]:
    """A table for each combination of the options other than learning rate and epochs."""
    tables: dict[Options, Sensitivity] = {}
    for setting in settings:
        others = tuple(pair for pair in setting.options if pair[0] != _RATE)
        table = tables.setdefault(others, Sensitivity(options=others, cells={}))
        most = max((max(states) for states in setting.runs.values()), default=0)
        for epoch in range(most + 1):
            states = setting.states(epoch)
            is_chosen = chosen is not None and _options(setting, epoch) == chosen
            table.cells[epoch, setting.lr] = SensitivityCell(
                error=_mean_error(states),
                missing=len(setting.expected) - len(states),
                collapsed=sum(state.collapsed for state in states.values()),
                diverged=sum(state.diverged for state in states.values()),
                chosen=is_chosen and (epoch > 0 or setting.epochs == [0]),
            )
    return list(tables.values())


Entry: TypeAlias = dict[str, Any]
"""The choice for a model and a recipe, as the file of ``acclimate tune --out`` has it."""

DEV = "dev"
ORACLE = "oracle: chosen on the test data"
LEAVE_ONE_OUT = "leave-one-out: chosen for each domain on the test data of the others"
LABEL_FREE = "label-free: chosen for each shift by the guard's score"


Way: TypeAlias = Literal["dev", "oracle", "leave-one-out", "label-free"]


def entry_of(settings: Sequence[Searched], way: Way) -> Entry | None:
    """What is best of some settings, chosen in one of four ways; None where nothing can be."""
    found: Entry
    if way == "leave-one-out":
        choices = leave_one_out(settings)
        errors = [each.measured["error"] for each in choices.values()]
        found = {
            "by_shift": _by_shift(choices, error="dev_error"),
            "error": None if None in errors or not errors else mean(errors),
            "rule": RULE,
            "selection": LEAVE_ONE_OUT,
        }
    elif way == "label-free":
        free = choose_label_free(settings)
        found = {
            "by_shift": _by_shift(free.by_shift, error="error"),
            "error": free.error,
            "regret": free.regret,
            "labelled": None if free.labelled is None else _plain(free.labelled, error="error"),
            "rule": LABEL_FREE_RULE,
            "selection": LABEL_FREE,
        }
    else:
        choice, oracle = choose_from(settings), way == "oracle"
        if choice is None:
            return None
        found = {
            **_plain(choice, error="test_error" if oracle else "dev_error"),
            "rule": RULE,
            "selection": ORACLE if oracle else DEV,
        }
    return found | _about(settings) if found.get("by_shift", True) else None


def _by_shift(choices: Mapping[str, Choice], *, error: str) -> dict[str, Any]:
    return {name: {**_plain(c, error=error), **c.measured} for name, c in choices.items()}


def _plain(choice: Choice, *, error: str) -> dict[str, Any]:
    return {
        "options": dict(choice.options),
        error: choice.error,
        "chosen_on": list(choice.chosen_on),
        "candidates": choice.candidates,
        "alike": choice.alike,
    }


def _about(settings: Sequence[Searched]) -> dict[str, Any]:
    """What was searched: the values that could have been chosen, also of what every recipe has."""
    searched: dict[str, dict[Value, None]] = {}
    for setting in settings:
        rate = [] if setting.lr is None else [(_RATE, setting.lr)]
        epochs = [("epochs", number) for number in setting.epochs if number]
        for name, value in (*setting.options, *rate, *epochs) if setting.complete else ():
            searched.setdefault(name, {})[value] = None
    left = [setting for setting in settings if not setting.complete]
    return {
        "searched": {name: list(values) for name, values in searched.items()},
        "seeds": sorted({place.seed for setting in settings for place in setting.expected}),
        "incomplete": [{"options": dict(each.options), "why": each.missing} for each in left],
    }


_VALIDATION = "val"
_ONLY_TESTS = (
    "imagenet-a", "imagenet-d", "imagenet-d-curated", "imagenet-r", "imagenet-sketch",
    "imagenetv2", "cifar10.1",
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
