"""What a choice without labels costs, against one with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from acclimate.bench.choices import Choices, Chosen, Search
from acclimate.bench.job import Value
from acclimate.bench.record import Result
from acclimate.bench.selection import DEV, place_of, settings_of
from acclimate.data.shift import Shift
from acclimate.report.chosen import file_name, given_for
from acclimate.table import Entry, Table, number_entry
from acclimate.text import AS_IT_IS, option_words

__all__ = ["error_on", "regret_table"]

_ABOUT = (
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
        for row in _rows(model, recipe, chosen, choices, results, file=file_name(each))
    ]
    gaps = [_GAPS] if any(row[-1] == "–" for row in rows) else []
    return None if not rows else Table(
        name="regret",
        title="Label-free choices against those with labels",
        header=["model", "recipe", "file", "shifts", "label-free error %", "against", "options",
                "error %", "regret, points"],
        rows=rows,
        notes=(*_ABOUT, *gaps),
    )  # fmt: skip


def _rows(
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
    told = False
    for given in given_for(choices, model, recipe):
        options = given.chosen.options
        if given.chosen.selection != DEV or options is None:
            continue
        error: float | None
        if _same_runs(given.chosen.search, search):
            error, told = given.chosen.search.error, True
        else:
            error = error_on(results, options, model=model, recipe=recipe, search=search)
        words = f"the choice on hold-out corruptions ({given.file})"
        yield [*head, words, *_compared(options, search.error, error)]
    if labelled is not None and not told:
        oracle = "" if all(map(_held_out, search.chosen_on)) else " (oracle)"
        compared = _compared(labelled.options, search.error, labelled.error)
        yield [*head, f"one choice by the labels of the same shifts{oracle}", *compared]


def _same_runs(one: Search, other: Search) -> bool:
    """Whether the labels of the one search are those that the other did without."""
    return (set(one.chosen_on), set(one.seeds), one.images) == (
        set(other.chosen_on),
        set(other.seeds),
        other.images,
    )


def _compared(
    options: Mapping[str, Value], free: float | None, error: float | None
) -> tuple[Entry, Entry, Entry]:
    regret = None if free is None or error is None else free - error
    text = None if regret is None else f"{regret:+.2f}"
    return (
        option_words(options.items(), none=AS_IT_IS),
        number_entry(error, digits=2),
        number_entry(regret, digits=2, text=text),
    )


def error_on(
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
