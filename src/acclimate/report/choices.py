"""Choice files in a report: what was searched and chosen, whether it was run, what it cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from acclimate.bench.choices import Choices, Chosen, Search
from acclimate.bench.job import Job, Value
from acclimate.bench.record import Result
from acclimate.bench.selection import DEV, LABEL_FREE, LEAVE_ONE_OUT, ORACLE, place_of, settings_of
from acclimate.data.shift import Shift
from acclimate.table import Entry, Table, number_entry
from acclimate.text import DEFAULTS, option_words, value_word

__all__ = [
    "State",
    "by_shift_table",
    "choices_table",
    "file_name",
    "given_for",
    "judged",
    "regret_table",
    "searched_values",
]

State: TypeAlias = Literal["passed", "not passed", "cannot tell"]

# Of several choices for a recipe, the first of these that was run stands for it.
_ORDER = (DEV, LEAVE_ONE_OUT, LABEL_FREE, ORACLE, "")


@dataclass(frozen=True, kw_only=True)
class Given:
    """A choice for a model and a recipe, and the file it is from."""

    file: str
    chosen: Chosen

    @property
    def words(self) -> str:
        """The options, or that each shift has its own."""
        if self.chosen.options is None:
            return f"options for each of {len(self.chosen.by_shift)} shifts"
        return option_words(self.chosen.options.items(), none=DEFAULTS)


def file_name(choices: Choices) -> str:
    """A page may go to others: where the file lies is no part of it."""
    return Path(choices.source).name or "the choice file"


def given_for(choices: Sequence[Choices], model: str, recipe: str) -> list[Given]:
    """What the files have for a model and a recipe, that on hold-out corruptions first.

    >>> by_hand = Choices(chosen={"*": {"ent": Chosen(options={"epochs": 2})}}, source="a/b.json")
    >>> [(each.file, each.words) for each in given_for([by_hand], "wrn", "ent")]
    [('b.json', 'epochs=2')]
    """
    found = [
        Given(file=file_name(each), chosen=chosen)
        for each in choices
        if (chosen := each.find(model, recipe)) is not None
    ]
    return sorted(found, key=lambda each: _rank(each.chosen.selection))


def judged(given: Sequence[Given], reported: Sequence[Sequence[Job]]) -> tuple[State, str]:
    """Whether jobs ran with options that were chosen on other images, and how that shows.

    ``reported`` are the jobs of a model and recipe, by what is averaged: each has to have some
    with the options of a choice, or another setting would stand for the recipe there.
    """
    ran = [each for each in given if all(_ran(each.chosen, jobs) for jobs in reported)]
    if not ran:
        first = given[0]
        return "not passed", (
            f"{first.file} has {first.words}, which was not run for all that is reported"
        )
    best = ran[0]
    search, how = best.chosen.search, best.chosen.selection
    if how == DEV:
        many = "" if search.candidates is None else f", from {search.candidates} candidates"
        return "passed", (
            f"{best.words}, chosen on {len(search.chosen_on)} hold-out shifts{many} ({best.file})"
        )
    if how == LEAVE_ONE_OUT:
        return "passed", f"{best.words}, {how} ({best.file})"
    if how == LABEL_FREE:
        return "not passed", (
            f"{best.words}, {how} ({best.file}): on what is reported itself, though without labels"
        )
    if how:
        return "not passed", f"{best.words}, {how} ({best.file})"
    return "cannot tell", f"{best.words}, and {best.file} does not say how that was chosen"


def _ran(chosen: Chosen, jobs: Iterable[Job]) -> bool:
    return any(chosen.options_for(job) == dict(job.options) for job in jobs)


def searched_values(given: Iterable[Given], option: str) -> tuple[set[object], list[str]] | None:
    """The values of an option, or of a part and its options, and the files that have them.

    None where no file says what was searched; nothing where the option stayed the recipe's own.
    """
    telling = [each for each in given if each.chosen.search.searched]
    if not telling:
        return None
    values: set[object] = set()
    for each in telling:
        for name, tried in each.chosen.search.searched.items():
            if name == option:
                values.update(tried)
            elif name.startswith(f"{option}.") and len(tried) > 1:
                values.update(f"{name}={value}" for value in tried)
    return values, list(dict.fromkeys(each.file for each in telling))


def _rank(selection: str) -> int:
    return _ORDER.index(selection) if selection in _ORDER else len(_ORDER)


_FEW = 5  # values of an option that are listed before only the first and the last are
_NAMED = 2  # images that are named before they are only counted
_ABOUT = (
    "Error: the mean on what the options were chosen on, after the chosen number of epochs. "
    "Candidates: settings × epochs that could have been chosen.",
)


def choices_table(choices: Sequence[Choices], stored: Collection[tuple[str, str]] = ()) -> Table:
    """A row for each choice; ``stored`` are the models and recipes that have results.

    >>> by_hand = Choices(chosen={"wrn": {"ent": Chosen(options={"epochs": 2})}}, source="a.json")
    >>> choices_table([by_hand], [("wrn", "ent")]).rows[0][:4]
    ['wrn', 'ent', 'epochs=2', 'not recorded']
    """
    rows, gone = [], []
    for each in choices:
        for model, recipes in each.chosen.items():
            for recipe, chosen in recipes.items():
                rows.append(_row(model, recipe, chosen, file_name(each)))
        gone += [
            f"{recipe} of {model}"
            for model, recipes in each.chosen.items()
            for recipe in recipes
            if not any(each.find(*pair) is recipes[recipe] for pair in stored if pair[1] == recipe)
        ]
    unseen = [f"Without results in this report: {', '.join(dict.fromkeys(gone))}."] if gone else []
    return Table(
        name="choices",
        title="Chosen options",
        header=["model", "recipe", "chosen", "how", "chosen on", "error %", "searched",
                "candidates", "seeds", "images each", "file"],
        rows=rows,
        notes=(*_ABOUT, *unseen),
    )  # fmt: skip


def by_shift_table(choices: Sequence[Choices]) -> Table:
    """A row for each shift that has a choice of its own."""
    rows: list[list[Entry]] = [
        [model, recipe, shift, option_words(options.items(), none=DEFAULTS),
         number_entry(chosen.search.errors.get(shift), digits=2), file_name(each)]
        for each in choices
        for model, recipes in each.chosen.items()
        for recipe, chosen in recipes.items()
        for shift, options in chosen.by_shift.items()
    ]  # fmt: skip
    return Table(
        name="choices-by-shift",
        title="Options chosen for each shift",
        header=["model", "recipe", "shift", "chosen", "error % there", "file"],
        rows=rows,
    )


def _row(model: str, recipe: str, chosen: Chosen, file: str) -> list[Entry]:
    search = chosen.search
    if chosen.options is None:
        different = len({tuple(options.items()) for options in chosen.by_shift.values()})
        words = f"for each of {len(chosen.by_shift)} shifts, {different} different"
    else:
        words = option_words(chosen.options.items(), none=DEFAULTS)
    return [
        "all models" if model == "*" else model,
        recipe,
        words,
        chosen.selection or "not recorded",
        _places(search.chosen_on),
        number_entry(search.error, digits=2),
        _tried(search.searched),
        number_entry(search.candidates, digits=0),
        number_entry(len(search.seeds) or None, digits=0),
        number_entry(search.images, digits=0, text=None if search.images else "all")
        if search.chosen_on
        else "–",
        file,
    ]


def _places(places: Sequence[str]) -> str:
    if len(places) <= _NAMED:
        return ", ".join(places) or "not recorded"
    shifts = map(Shift.parse, places)
    names = dict.fromkeys(str(replace(shift, severity=None, seed=0)) for shift in shifts)
    named = ", ".join(names) if len(names) <= _FEW else f"{next(iter(names))}, …"
    return f"{len(places)} shifts: {named}"


def _tried(searched: Mapping[str, Sequence[Value]]) -> str:
    """What had more than one value.

    >>> _tried({"optimizer.lr": (0.01, 0.001), "epochs": (1, 2, 3, 4, 5, 6), "batch_size": (64,)})
    'optimizer.lr: 0.01, 0.001; epochs: 1 to 6'
    """
    if not searched:
        return "not recorded"
    parts = [f"{name}: {_values(values)}" for name, values in searched.items() if len(values) > 1]
    return "; ".join(parts) or "nothing: one candidate"


def _values(values: Sequence[Value]) -> str:
    numbers = sorted(value for value in values if isinstance(value, int | float))
    if len(numbers) == len(values) > _FEW:
        return f"{numbers[0]:g} to {numbers[-1]:g}"
    return ", ".join(map(value_word, values))


_REGRET = (
    "Regret: how many points more the error is than with the choice it is compared with; below "
    "zero it is less, since a choice for each shift may well beat one for all.",
    "“Oracle” saw the labels of the very images that it is scored on.",
)
_GAPS = (
    "–: some shift has no choice without labels, or this store lacks runs with these options on "
    "all of the shifts, from the same seeds."
)


def regret_table(choices: Sequence[Choices], results: Sequence[Result]) -> Table | None:
    """A row for each choice without labels and each choice it is compared with."""
    rows = [
        row
        for each in choices
        for model, recipes in each.chosen.items()
        for recipe, chosen in recipes.items()
        if chosen.search.labelled is not None
        for row in _regret_rows(model, recipe, chosen, choices, results, file=file_name(each))
    ]
    gaps = [_GAPS] if any(row[-1] == "–" for row in rows) else []
    return None if not rows else Table(
        name="regret",
        title="Label-free choices against those with labels",
        header=["model", "recipe", "file", "shifts", "label-free error %", "against", "options",
                "error %", "regret, points"],
        rows=rows,
        notes=(*_REGRET, *gaps),
    )  # fmt: skip


def _regret_rows(
    model: str,
    recipe: str,
    chosen: Chosen,
    choices: Sequence[Choices],
    results: Sequence[Result],
    *,
    file: str,
) -> Iterator[list[Entry]]:
    search, labelled = chosen.search, chosen.search.labelled
    head: list[Entry] = [
        model,
        recipe,
        file,
        number_entry(len(chosen.by_shift), digits=0),
        number_entry(search.error, digits=2),
    ]
    known = False
    for given in given_for(choices, model, recipe):
        options = given.chosen.options
        if given.chosen.selection != DEV or options is None:
            continue
        error: float | None
        if _same_runs(given.chosen.search, search):
            error, known = given.chosen.search.error, True
        else:
            error = _error_on(results, options, model=model, recipe=recipe, search=search)
        words = f"the choice on hold-out corruptions ({given.file})"
        yield [*head, words, *_against(options, search.error, error)]
    if labelled is not None and not known:
        oracle = "" if all(map(_held_out, search.chosen_on)) else " (oracle)"
        compared = _against(labelled.options, search.error, labelled.error)
        yield [*head, f"one choice by the labels of the same shifts{oracle}", *compared]


def _same_runs(one: Search, other: Search) -> bool:
    """Whether the labels of the one search are those that the other did without."""
    return (set(one.chosen_on), set(one.seeds), one.images) == (
        set(other.chosen_on),
        set(other.seeds),
        other.images,
    )


def _against(
    options: Mapping[str, Value], free: float | None, error: float | None
) -> tuple[Entry, Entry, Entry]:
    regret = None if free is None or error is None else free - error
    text = None if regret is None else f"{regret:+.2f}"
    return (
        option_words(options.items(), none=DEFAULTS),
        number_entry(error, digits=2),
        number_entry(regret, digits=2, text=text),
    )


def _error_on(
    results: Sequence[Result],
    options: Mapping[str, Value],
    *,
    model: str,
    recipe: str,
    search: Search,
) -> float | None:
    """The mean error of options on the images of another search; None where runs are missing.

    As in a search, a run of more epochs tells of fewer.
    """
    wanted = {(place, seed) for place in search.chosen_on for seed in search.seeds}
    found = {
        result.key: result
        for result in results
        if (result.job.model, result.job.recipe) == (model, recipe)
        and (result.job.images, result.job.setting) == (search.images, None)
        and (place_of(result.job).words, result.job.seed) in wanted
        and _but_epochs(dict(result.job.options)) == _but_epochs(options)
    }
    if len({result.job.weights for result in found.values()}) > 1:
        return None  # a choice file does not say of which weights it is
    for setting in settings_of([result.job for result in found.values()], found):
        whole = {(place.words, place.seed) for place in setting.runs} == wanted
        epochs = options.get("epochs", max(setting.epochs, default=0))
        if whole and epochs in setting.epochs:
            return setting.error(int(epochs or 0))
    return None


def _but_epochs(options: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in options.items() if name != "epochs"}


def _held_out(images: str) -> bool:
    """Whether images, in the words of a choice file, are there to choose on.

    >>> list(map(_held_out, ("cifar10 cifar/spatter:3", "camelyon17 val", "imagenet-d real")))
    [True, True, False]
    """
    last = images.split()[-1]
    return last == "val" or Shift.parse(last).group == "dev"
