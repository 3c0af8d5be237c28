"""The part of a report that shows choice files: what was searched, on what, and what was chosen."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from acclimate.bench.choices import Choices, Chosen
from acclimate.bench.job import Value
from acclimate.data.shift import Shift
from acclimate.report.chosen import file_name
from acclimate.table import Entry, Table, number_entry
from acclimate.text import AS_IT_IS, option_words, value_word

__all__ = ["by_shift_table", "choices_table"]

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
        [model, recipe, shift, option_words(options.items(), none=AS_IT_IS),
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
        words = option_words(chosen.options.items(), none=AS_IT_IS)
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
