"""Choice files in a report: what was searched and chosen, whether it was run, what it cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from acclimate.bench.choices import Choices, Chosen
from acclimate.bench.job import Job, Value
from acclimate.bench.record import Result
from acclimate.bench.selection import DEV, LABEL_FREE, LEAVE_ONE_OUT, ORACLE, place_of, settings_of
from acclimate.data.shift import Shift
from acclimate.table import Entry, Table, number_entry
from acclimate.text import DEFAULTS, option_words, value_word

__all__ = [
    "State", "by_shift_table", "choices_table", "file_name", "given_for", "judged", "regret_table",
    "searched_values",
]  # fmt: skip

State: TypeAlias = Literal["passed", "not passed", "cannot tell"]

# Of several choices for a recipe, the first of these that was run stands for it.
_ORDER = (DEV, LEAVE_ONE_OUT, LABEL_FREE, ORACLE, "")


@dataclass(frozen=True, kw_only=True)
class Given:
    """A choice, the file it is from, and for which model and recipe it is there."""

    file: str
    chosen: Chosen
    model: str
    recipe: str

    @property
    def words(self) -> str:
        """The options, or that each shift has its own."""
        if self.chosen.options is None:
            return f"options for each of {len(self.chosen.by_shift)} shifts"
        return option_words(self.chosen.options.items(), none=DEFAULTS)


def file_name(choices: Choices) -> str:
    """A page may go to others: where the file lies is no part of it."""
    return Path(choices.source).name or "the choice file"


def _all_given(choices: Sequence[Choices]) -> list[Given]:
    """Every choice of the files; their models may be patterns."""
    return [
        Given(file=file_name(each), chosen=chosen, model=model, recipe=recipe)
        for each in choices
        for model, recipes in each.chosen.items()
        for recipe, chosen in recipes.items()
    ]


def given_for(choices: Sequence[Choices], model: str, recipe: str) -> list[Given]:
    """What the files have for a model and a recipe, that on hold-out corruptions first.

    >>> by_hand = Choices(chosen={"*": {"ent": Chosen(options={"epochs": 2})}}, source="a/b.json")
    >>> [(each.file, each.words) for each in given_for([by_hand], "wrn", "ent")]
    [('b.json', 'epochs=2')]
    """
    found = [
        Given(file=file_name(each), chosen=chosen, model=model, recipe=recipe)
        for each in choices
        if (chosen := each.find(model, recipe)) is not None
    ]
    rank = {selection: place for place, selection in enumerate(_ORDER)}
    return sorted(found, key=lambda each: rank.get(each.chosen.selection, len(rank)))


def judged(given: Sequence[Given], reported: Sequence[Sequence[Job]]) -> tuple[State, str]:
    """Whether jobs ran with options that were chosen on other images, and how that shows.

    ``reported`` are the jobs of a model and recipe, by what is averaged: each has to have some
    with the options of a choice, or another setting would stand for the recipe there.
    """
    ran = (each for each in given if all(_ran(each.chosen, jobs) for jobs in reported))
    best = next(ran, None)
    if best is None:
        first = given[0]
        return "not passed", (
            f"{first.file} has {first.words}, which was not run for all that is reported"
        )
    search, how = best.chosen.search, best.chosen.selection
    if how == DEV:
        many = "" if search.candidates is None else f", from {search.candidates} candidates"
        return "passed", (
            f"{best.words}, chosen on {len(search.chosen_on)} hold-out shifts{many} ({best.file})"
        )
    if not how:
        return "cannot tell", f"{best.words}, and {best.file} does not say how that was chosen"
    words = f"{best.words}, {how} ({best.file})"
    if how == LABEL_FREE:
        words += ": on what is reported itself, though without labels"
    return "passed" if how == LEAVE_ONE_OUT else "not passed", words


def _ran(chosen: Chosen, jobs: Iterable[Job]) -> bool:
    return any(chosen.options_for(job) == dict(job.options) for job in jobs)


def searched_values(given: Iterable[Given], option: str) -> tuple[set[object], list[str]] | None:
    """The values of an option, or of a part and its options, and the files that have them.

    None where no file says what was searched; nothing where the option stayed the recipe's own.
    """
    telling = [each for each in given if each.chosen.search.searched]
    values: set[object] = set()
    for each in telling:
        for name, tried in each.chosen.search.searched.items():
            if name == option:
                values.update(tried)
            elif name.startswith(f"{option}.") and len(tried) > 1:
                values.update(f"{name}={value}" for value in tried)
    return (values, list(dict.fromkeys(each.file for each in telling))) if telling else None


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
    met = [each.find(*pair) for each in choices for pair in stored]
    gone = dict.fromkeys(
        f"{each.recipe} of {each.model}"
        for each in _all_given(choices)
        if not any(each.chosen is one for one in met)
    )
    unseen = [f"Without results in this report: {', '.join(gone)}."] if gone else []
    return Table(
        name="choices",
        title="Chosen options",
        header=["model", "recipe", "chosen", "how", "chosen on", "error %", "searched",
                "candidates", "seeds", "images each", "file"],
        rows=[_row(each) for each in _all_given(choices)],
        notes=(*_ABOUT, *unseen),
    )  # fmt: skip


def by_shift_table(choices: Sequence[Choices]) -> Table:
    """A row for each shift that has a choice of its own."""
    rows: list[list[Entry]] = [
        [each.model, each.recipe, shift, option_words(options.items(), none=DEFAULTS),
         number_entry(each.chosen.search.errors.get(shift), digits=2), each.file]
        for each in _all_given(choices)
        for shift, options in each.chosen.by_shift.items()
    ]  # fmt: skip
    return Table(
        name="choices-by-shift",
        title="Options chosen for each shift",
        header=["model", "recipe", "shift", "chosen", "error % there", "file"],
        rows=rows,
    )


def _row(given: Given) -> list[Entry]:
    chosen, search, words = given.chosen, given.chosen.search, given.words
    if chosen.options is None:
        different = len({tuple(options.items()) for options in chosen.by_shift.values()})
        words = f"for each of {len(chosen.by_shift)} shifts, {different} different"
    images = number_entry(search.images, digits=0, text=None if search.images else "all")
    return [
        "all models" if given.model == "*" else given.model,
        given.recipe,
        words,
        chosen.selection or "not recorded",
        _places(search.chosen_on),
        number_entry(search.error, digits=2),
        _tried(search.searched),
        number_entry(search.candidates, digits=0),
        number_entry(len(search.seeds) or None, digits=0),
        images if search.chosen_on else "–",
        given.file,
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
    parts = []
    for name, values in searched.items():
        numbers = sorted(value for value in values if isinstance(value, int | float))
        words = ", ".join(map(value_word, values))
        if len(numbers) == len(values) > _FEW:
            words = f"{numbers[0]:g} to {numbers[-1]:g}"
        parts += [f"{name}: {words}"] if len(values) > 1 else []
    return "; ".join(parts) or ("nothing: one candidate" if searched else "not recorded")


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
    rows: list[list[Entry]] = []
    for free in _all_given(choices):
        search = free.chosen.search
        for against, options, error in _with_labels(free, choices, results):
            regret = None if search.error is None or error is None else search.error - error
            text = None if regret is None else f"{regret:+.2f}"
            rows.append([
                free.model, free.recipe, free.file,
                number_entry(len(free.chosen.by_shift), digits=0),
                number_entry(search.error, digits=2), against,
                option_words(options.items(), none=DEFAULTS),
                number_entry(error, digits=2), number_entry(regret, text=text),
            ])  # fmt: skip
    gaps = [_GAPS] if any(row[-1] == "–" for row in rows) else []
    return None if not rows else Table(
        name="regret",
        title="Label-free choices against those with labels",
        header=["model", "recipe", "file", "shifts", "label-free error %", "against", "options",
                "error %", "regret, points"],
        rows=rows,
        notes=(*_REGRET, *gaps),
    )  # fmt: skip


def _with_labels(
    free: Given, choices: Sequence[Choices], results: Sequence[Result]
) -> Iterator[tuple[str, Mapping[str, Value], float | None]]:
    """What a choice without labels is compared with: in words, its options and its error."""
    search, labelled = free.chosen.search, free.chosen.search.labelled
    if labelled is None:
        return
    known = False
    for given in given_for(choices, free.model, free.recipe):
        options, of = given.chosen.options, given.chosen.search
        if given.chosen.selection != DEV or options is None:
            continue
        # Of the same runs, its labels are those that the other did without.
        same = all(set(one) == set(other) for one, other in
                   ((of.chosen_on, search.chosen_on), (of.seeds, search.seeds)))  # fmt: skip
        same = same and of.images == search.images
        known = known or same
        error = of.error if same else _error_on(results, options, free)
        yield f"the choice on hold-out corruptions ({given.file})", options, error
    if not known:
        oracle = "" if all(map(_held_out, search.chosen_on)) else " (oracle)"
        words = f"one choice by the labels of the same shifts{oracle}"
        yield words, labelled.options, labelled.error


def _error_on(results: Sequence[Result], options: Mapping[str, Value], free: Given) -> float | None:
    """The mean error of options on the images of another choice; None where runs are missing.

    As in a search, a run of more epochs tells of fewer.
    """
    search = free.chosen.search
    wanted = {(place, seed) for place in search.chosen_on for seed in search.seeds}
    found = {
        result.key: result
        for result in results
        if (result.job.model, result.job.recipe) == (free.model, free.recipe)
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
