"""Results sorted into the cells of a table: what tells them apart, and in which order."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, TypeAlias

from acclimate.corruption_names import DEV, TEST, plain_shift
from acclimate.experiments._frame import Frame

__all__ = [
    "AVERAGED",
    "DIMENSIONS",
    "Gathered",
    "Key",
    "determined",
    "differing",
    "expected_shifts",
    "gathered",
    "ordered",
    "without_shown_options",
]

Key: TypeAlias = tuple[Any, ...]

AVERAGED = ("corruption", "severity", "seed")
"""What a mean may be over: severities first, then corruptions, then seeds."""

# In the order in which they become rows where they differ and nobody said what to do with them.
DIMENSIONS = (
    "model", "weights", "dataset", "split", "preset", "draw", "group", "images", "setting",
    "recipe", "options", *AVERAGED,
)  # fmt: skip

# What is plain from another name where it goes with it. Nothing else is: that a model has met one
# data set, and another model another, cannot be seen from their names.
_TOLD_BY = {"weights": "model", "preset": "dataset", "group": "corruption"}


class Gathered:
    """What falls into one cell."""

    def __init__(self, *, first: Key) -> None:
        self.first = first
        self.numbers: dict[int, dict[str | None, dict[int | None, float]]] = {}
        self.failed = 0
        self.severe = False
        self._labelled: dict[int, int] = {}
        self._counted = True

    def take(
        self,
        corruption: str | None,
        severity: int | None,
        seed: int,
        status: str,
        labelled: int | None,
        number: float | None,
    ) -> None:
        """Sort in one result."""
        self.severe = self.severe or severity is not None
        if status != "done":
            self.failed += 1
        elif number is not None:
            self.numbers.setdefault(seed, {}).setdefault(corruption, {})[severity] = number
            self._counted = self._counted and labelled is not None
            self._labelled[seed] = self._labelled.get(seed, 0) + (labelled or 0)

    def merge(self, other: Gathered) -> None:
        """Add what fell into a cell of other corruptions."""
        self.failed, self.severe = self.failed + other.failed, self.severe or other.severe
        for seed, shifts in other.numbers.items():
            self.numbers.setdefault(seed, {}).update(shifts)
            self._labelled[seed] = self._labelled.get(seed, 0) + other._labelled[seed]
        self._counted = self._counted and other._counted

    @property
    def images(self) -> Mapping[int, int]:
        """Labelled images behind the number of each seed; empty where that is not known."""
        return self._labelled if self._counted else {}


def gathered(
    frame: Frame, rows: Sequence[str], columns: Sequence[str], value: str, *, count: str
) -> dict[tuple[Key, Key], Gathered]:
    """The results of each cell, by row and column; ``count`` has the labelled images of each."""
    take = itemgetter(*(frame.place(name) for name in (*AVERAGED, "status", count, value)))
    row_of, column_of = key_of(frame, rows), key_of(frame, columns)
    found: dict[tuple[Key, Key], Gathered] = {}
    for row in frame.rows:
        place = (row_of(row), column_of(row))
        cell = found.get(place)
        if cell is None:
            cell = found[place] = Gathered(first=row)
        cell.take(*take(row))
    return found


def key_of(frame: Frame, names: Sequence[str]) -> Callable[[Key], Key]:
    """The function that takes the values of these columns out of a row."""
    places = [frame.place(name) for name in names]
    if not places:
        return lambda row: ()
    if len(places) == 1:
        place = places[0]
        return lambda row: (row[place],)
    return itemgetter(*places)


def differing(frame: Frame, names: Sequence[str], several: Sequence[str]) -> list[str]:
    """What a table by these names has to tell too: it differs, and is not averaged over.

    Of ``several``, the dimensions with more than one value.
    """
    more: list[str] = []
    for name in several:
        if name in names or name in AVERAGED:
            continue
        told_by = [each for each in (*names, *more) if each == _TOLD_BY.get(name)]
        if not determined(frame, told_by, name):
            more.append(name)
    return more


def determined(frame: Frame, names: Sequence[str], name: str) -> bool:
    """Whether results alike in ``names`` are alike in ``name``.

    >>> frame = Frame(columns=("recipe", "seed"), rows=[("ent", 0), ("bn", 0), ("ent", 1)])
    >>> determined(frame, ["recipe"], "seed"), determined(frame, ["recipe", "seed"], "seed")
    (False, True)
    """
    take, place = key_of(frame, names), frame.place(name)
    first: dict[Key, Any] = {}
    return all(first.setdefault(take(row), row[place]) == row[place] for row in frame.rows)


def without_shown_options(frame: Frame, names: Sequence[str]) -> Frame:
    """Options that are rows or columns of their own need not tell anything apart again."""
    shown = frozenset(n.removeprefix("options.") for n in names if n.startswith("options."))
    if not shown:
        return frame
    place = frame.place("options")
    rows = [(*r[:place], _options_left(r[place], shown), *r[place + 1 :]) for r in frame.rows]
    return replace(frame, rows=rows)


@lru_cache(maxsize=4096)
def _options_left(text: str, shown: frozenset[str]) -> str:
    left = {key: value for key, value in json.loads(text).items() if key not in shown}
    return json.dumps(left, sort_keys=True, separators=(",", ":"))


def expected_shifts(frame: Frame, found: Gathered) -> int:
    """How many corruptions or domains a whole mean is over."""
    group = found.first[frame.place("group")]
    present = {name for each in found.numbers.values() for name in each}
    if present <= {group, "all"}:  # nothing shifted, or a stream through all of them
        return 1
    if group is not None:
        return len(TEST if group == "test" else DEV)
    dataset = found.first[frame.place("dataset")]
    return max(_shift_counts().get(dataset, 0), len(present))


def _shift_counts() -> Mapping[str, int]:
    # Only where shifts are domains: loaders need torch, and a table of corruptions does not.
    from acclimate.data.benchmarks import list_datasets

    return {record.name: len(record.shifts) for record in list_datasets()}


_PAPER_ORDER = {name: place for place, name in enumerate((*TEST, *DEV))}


def ordered(names: Sequence[str], keys: set[Key]) -> list[Key]:
    """Corruptions in the paper's order, numbers by size, words by the alphabet, None first."""

    def rank(name: str, value: Any) -> tuple[Any, ...]:
        if value is None:
            return (0,)
        if name == "corruption":
            place = _PAPER_ORDER.get(plain_shift(value), len(_PAPER_ORDER))
            return (1, place, value)
        if name == "options":
            return (2, [(key, *rank("", each)) for key, each in sorted(json.loads(value).items())])
        return (2, str(value)) if isinstance(value, str) else (1, value)

    return sorted(keys, key=lambda key: [rank(*pair) for pair in zip(names, key, strict=True)])
