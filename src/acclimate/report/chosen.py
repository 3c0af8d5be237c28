"""What choice files say of a model and a recipe, and whether it is what a report is of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from acclimate.bench.choices import Choices, Chosen
from acclimate.bench.job import Job
from acclimate.bench.selection import DEV, LABEL_FREE, LEAVE_ONE_OUT, ORACLE
from acclimate.text import AS_IT_IS, option_words

__all__ = [
    "Given",
    "State",
    "file_name",
    "given_for",
    "judged",
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
        return option_words(self.chosen.options.items(), none=AS_IT_IS)


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
