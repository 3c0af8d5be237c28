"""Tables of results: rows, columns, and means over the rest that say what they are over."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cache
from operator import itemgetter
from types import MappingProxyType
from typing import Any, TypeAlias

from acclimate.bench.store import Frame
from acclimate.data.shift import DEV, SEVERITIES, STAND_INS, TEST, plain_shift
from acclimate.errors import AcclimateError, unknown_name
from acclimate.metrics.mean import Shifts, mean, mean_over_shifts, on_the_same, spread

__all__ = [
    "Cell",
    "Frame",
    "Table",
    "cell_of",
    "corruption_table",
    "needed",
    "ordered",
    "pivot",
]

Measure: TypeAlias = Callable[[Shifts], float | None]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of a table, with what it takes to read it.

    Attributes:
        value: the mean over seeds; None where there is nothing, or too little for the measure.
        std: over seeds; None where there is one.
        seeds: how many enter: those that ran on the most, and on the same.
        all_seeds: how many there are.
        shifts: how many corruptions (or domains) enter.
        expected_shifts: how many there are.
        parts: how many corruptions at a severity enter, over these seeds.
        expected_parts: how many there would have to be.
        images: labelled images behind one seed's number; None where that is not known.
        failed: how many results failed.

    >>> print(Cell(value=21.34, std=0.5, seeds=3, all_seeds=3, shifts=12, expected_shifts=15,
    ...            parts=180, expected_parts=225))
    21.3 ± 0.5 (12 of 15)
    """

    value: float | None
    std: float | None = None
    seeds: int = 0
    all_seeds: int = 0
    shifts: int = 0
    expected_shifts: int = 0
    parts: int = 0
    expected_parts: int = 0
    images: int | None = None
    failed: int = 0

    @property
    def complete(self) -> bool:
        """Whether everything is there that the mean is meant to be over."""
        return self.parts >= self.expected_parts and self.seeds >= self.all_seeds

    @property
    def missing(self) -> str:
        """What of it is there, in words; empty where all is.

        Parts are counted over severities and seeds too, where not only whole shifts are missing.
        """
        words = []
        if self.parts < self.expected_parts:
            if self.shifts < self.expected_shifts:
                words.append(f"{self.shifts} of {self.expected_shifts}")
            if self.parts * self.expected_shifts != self.shifts * self.expected_parts:
                words.append(f"{self.parts} of {self.expected_parts} parts")
        if self.seeds < self.all_seeds:
            words.append(f"{self.seeds} of {self.all_seeds} seeds")
        return ", ".join(words)

    def text(self, digits: int = 1) -> str:
        """As a table shows it."""
        number = "-" if self.value is None else f"{self.value:.{digits}f}"
        spread = "" if self.std is None else f" ± {self.std:.{digits}f}"
        missing = f" ({self.missing})" if self.missing and self.parts else ""
        failed = f" [{self.failed} failed]" if self.failed else ""
        return f"{number}{spread}{missing}{failed}"

    def __str__(self) -> str:
        return self.text()


def cell_of(
    by_seed: Mapping[int, Shifts],
    *,
    measure: Measure,
    shifts: int,
    severities: int,
    images: Mapping[int, int] = MappingProxyType({}),
    failed: int = 0,
) -> Cell:
    """A cell from the numbers (and images) of each seed, where so much is expected."""
    all_seeds, by_seed = len(by_seed), on_the_same(by_seed)
    measured = map(measure, by_seed.values())
    numbers = [number for number in measured if number is not None]
    return Cell(
        value=mean(numbers) if numbers else None,
        std=spread(numbers),
        seeds=len(by_seed),
        all_seeds=all_seeds,
        shifts=min((len(each) for each in by_seed.values()), default=0),
        expected_shifts=shifts,
        parts=sum(len(values) for each in by_seed.values() for values in each.values()),
        expected_parts=shifts * severities * max(len(by_seed), 1),
        images=min((images[seed] for seed in by_seed if seed in images), default=None),
        failed=failed,
    )


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A number: which column it comes from, what it is in words, how it is averaged.

    Attributes:
        column: of the store.
        title: what it is.
        unit: for the head of its column.
        count: the column with the number of labelled images it is of.
        by_shift: whether the record of a stream has it for each shift it met.
        digits: how many to print.
        measure: the number of a seed, from that of each of its shifts.
        whole: whether it is defined only over all corruptions and severities of ImageNet-C.
    """

    column: str
    title: str
    unit: str = ""
    count: str = "labelled"
    by_shift: bool = False
    digits: int = 1
    measure: Measure = mean_over_shifts
    whole: bool = False


def _mce(shifts: Shifts) -> float | None:
    """The mCE, where all fifteen corruptions at all five severities are there."""
    names = [plain_shift(str(name)) for name in shifts]
    if sorted(names) != sorted(TEST) or any(set(v) != set(SEVERITIES) for v in shifts.values()):
        return None
    from acclimate.metrics import mce  # needs torch, and no other number here does

    errors = {str(name): [values[s] for s in SEVERITIES] for name, values in shifts.items()}
    return mce(errors).value


def _mebibytes(shifts: Shifts) -> float | None:
    found = mean_over_shifts(shifts)
    return None if found is None else found / 2**20


VALUES = {
    "error": Shown(
        column="error",
        title="top-1 error % of the returned model, or of a stream's predictions",
        by_shift=True,
    ),
    "online": Shown(
        column="online", title="top-1 error % before each update, first epoch", by_shift=True
    ),
    "unadapted": Shown(column="unadapted", title="top-1 error % of the source model"),
    "mce": Shown(
        column="error",
        title="mCE % of the returned model, relative to AlexNet",
        measure=_mce,
        whole=True,
    ),
    "ece": Shown(column="ece", title="expected calibration error, 15 bins", digits=3),
    "seconds": Shown(column="seconds", title="seconds for one shift"),
    "memory": Shown(
        column="memory",
        title="MiB of memory at the peak",
        unit="MiB",
        digits=0,
        measure=_mebibytes,
    ),
    "forgetting": Shown(
        column="forgetting",
        title="top-1 error % on clean images, after minus before",
        unit="points",
        count="forgetting_images",
    ),
}


def _shown(value: str) -> Shown:
    if value not in VALUES:
        raise unknown_name("value", value, VALUES)
    return VALUES[value]


Key: TypeAlias = tuple[Any, ...]
Places: TypeAlias = dict[tuple[Key, Key], list[Key]]
"""The results of each cell, by row and column."""

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

BY_SHIFT = "by_shift"
"""The column with a stream's errors by shift, as JSON; None where a result has nothing of it."""


def _key_of(frame: Frame, names: Sequence[str]) -> Callable[[Key], Key]:
    """The function that takes the values of these columns out of a row."""
    places = [frame.place(name) for name in names]
    if len(places) > 1:
        return itemgetter(*places)
    return lambda row: tuple(row[place] for place in places)


def _determined(frame: Frame, names: Sequence[str], name: str) -> bool:
    """Whether results alike in ``names`` are alike in ``name``."""
    take, place = _key_of(frame, names), frame.place(name)
    first: dict[Key, Any] = {}
    return all(first.setdefault(take(row), row[place]) == row[place] for row in frame.rows)


def _without_shown_options(frame: Frame, names: Sequence[str]) -> Frame:
    """Options that are rows or columns of their own need not tell anything apart again."""
    shown = {name.removeprefix("options.") for name in names if name.startswith("options.")}
    if not shown:
        return frame

    @cache
    def left(text: str) -> str:
        others = {key: value for key, value in json.loads(text).items() if key not in shown}
        return json.dumps(others, sort_keys=True, separators=(",", ":"))

    place = frame.place("options")
    rows = [(*row[:place], left(row[place]), *row[place + 1 :]) for row in frame.rows]
    return replace(frame, rows=rows)


_FROST = "frost"
"""The row that tells means over frost of photographs and over frost of our own apart."""


def _with_kind_of_frost(frame: Frame) -> Frame | None:
    """With a column that has the frost a run's mean is over; None where all have the same.

    Images under the two have nothing in common, so that a mean over one is none over the other.
    """
    kinds, at = {"frost", *STAND_INS}, frame.place("corruption")
    if len(kinds.intersection(frame.column("corruption"))) < 2:
        return None
    of_run = _key_of(frame, [name for name in DIMENSIONS if name not in AVERAGED])
    found: dict[Key, set[str]] = defaultdict(set)
    for row in frame.rows:
        if row[at] in kinds:
            found[of_run(row)].add(row[at])
    words = {run: " and ".join(sorted(each)) for run, each in found.items()}
    rows = [(*row, words.get(of_run(row))) for row in frame.rows]
    return Frame(columns=(*frame.columns, _FROST), rows=rows)


def by_shift(frame: Frame, *, value: str) -> Frame:
    """Each stream in as many parts as it met shifts, with the error on each as its ``value``.

    A shift met several times (growing and fading) counts with the mean over these.

    >>> columns = ("corruption", "labelled", "by_shift", "error")
    >>> rows = [("test", 40, '{"fog": [10.0, 30.0], "snow": [50.0]}', 35.0)]
    >>> by_shift(Frame(columns=columns, rows=rows), value="error").rows
    [('fog', 20, None, 20.0), ('snow', 20, None, 50.0)]
    """
    rows: list[Key] = []
    for row in frame.rows:
        whole = dict(zip(frame.columns, row, strict=True))
        errors: Mapping[str, Sequence[float | None]] = json.loads(whole[BY_SHIFT] or "{}")
        if not errors:
            rows.append(row)
        for name, each in errors.items():
            known = [error for error in each if error is not None]
            # The shifts of a group are of the same images.
            labelled = None if whole["labelled"] is None else whole["labelled"] // len(errors)
            part = {"corruption": name, "labelled": labelled, BY_SHIFT: None}
            rows.append(tuple((whole | part | {value: mean(known) if known else None}).values()))
    return replace(frame, rows=rows)


def _expected_shifts(group: str | None, dataset: str, present: Set[str | None]) -> int:
    """How many corruptions or domains a whole mean is over."""
    if present <= {group, "all"}:  # nothing shifted, or a stream through all of them
        return 1
    if group is not None:
        return len(TEST if group == "test" else DEV)
    # Only where shifts are domains: loaders need torch, and a table of corruptions does not.
    from acclimate.data.benchmarks import list_datasets

    counts = {record.name: len(record.shifts) for record in list_datasets()}
    return max(counts.get(dataset, 0), len(present))


_PAPER_ORDER = {name: place for place, name in enumerate((*TEST, *DEV))}


def ordered(names: Sequence[str], keys: set[Key]) -> list[Key]:
    """Corruptions in the paper's order, numbers by size, words by the alphabet, None first."""

    def rank(name: str, value: Any) -> tuple[Any, ...]:
        if value is None:
            return (0,)
        if name == "corruption":
            return (1, _PAPER_ORDER.get(plain_shift(value), len(_PAPER_ORDER)), value)
        if name == "options":
            return (2, [(key, *rank("", each)) for key, each in sorted(json.loads(value).items())])
        return (2, str(value)) if isinstance(value, str) else (1, value)

    return sorted(keys, key=lambda key: [rank(*pair) for pair in zip(names, key, strict=True)])


_PLAIN = ("value", "title", "unit", "constant", "failed")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A pivot table.

    Attributes:
        rows: names of what tells the rows apart.
        columns: names of what tells the columns apart; none for a single column.
        value: what is shown, ``title`` in words, and ``unit`` where its head should say it.
        row_keys: in order, a value for each name.
        column_keys: in order.
        cells: by row and column; one that is not there has no results.
        constant: what is the same in all of it.
        severities: those that means are over.
        digits: how many to print.
        failed: how many results failed.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    value: str
    title: str
    row_keys: list[Key]
    column_keys: list[Key]
    cells: dict[tuple[Key, Key], Cell] = field(repr=False)
    constant: dict[str, Any]
    severities: tuple[int, ...]
    digits: int = 1
    unit: str = ""
    failed: int = 0

    def cell(self, row: Key, column: Key = ()) -> Cell:
        """A cell, empty where there are no results."""
        return self.cells.get((row, column), Cell(value=None))

    def sorted_by(self, name: str) -> Table:
        """Rows by one of their names, by a column's head, or by the value that the table shows.

        With several columns the value is the mean over those that all rows have. What is not known
        comes last; a minus before the name turns the others around.

        >>> cells = {(("a",), ()): Cell(value=2.0), (("b",), ()): Cell(value=1.0)}
        >>> table = Table(rows=("recipe",), columns=(), value="error", title="", constant={},
        ...               row_keys=[("a",), ("b",)], column_keys=[()], cells=cells, severities=())
        >>> table.sorted_by("error").row_keys, table.sorted_by("-error").row_keys
        ([('b',), ('a',)], [('a',), ('b',)])
        """
        plain = name.removeprefix("-")
        heads = {" ".join(map(str, key)): key for key in self.column_keys if key}
        if plain in self.rows:
            place = self.rows.index(plain)
            ranks = {row: row[place] for row in self.row_keys}
        elif plain == self.value:
            ranks = {row: self._mean_of(row) for row in self.row_keys}
        elif plain in heads:
            ranks = {row: self.cell(row, heads[plain]).value for row in self.row_keys}
        else:
            raise unknown_name("name to sort by", plain, [self.value, *self.rows, *heads])
        known = [row for row in self.row_keys if ranks[row] is not None]
        known.sort(key=lambda row: ranks[row], reverse=name != plain)
        return replace(self, row_keys=known + [row for row in self.row_keys if row not in known])

    def _mean_of(self, row: Key) -> float | None:
        """Of the columns that every row with numbers has, or of this row's where there are none."""
        known = {place: cell.value for place, cell in self.cells.items() if cell.value is not None}
        numbers = {
            each: {key: known[each, key] for key in self.column_keys if (each, key) in known}
            for each in self.row_keys
        }
        shared = set(self.column_keys).intersection(*filter(None, numbers.values()))
        found = [value for key, value in numbers[row].items() if key in (shared or numbers[row])]
        return mean(found) if found else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        cells = [
            {
                "row": dict(zip(self.rows, row, strict=True)),
                "column": dict(zip(self.columns, column, strict=False)),
                **vars(cell),
                "complete": cell.complete,
            }
            for (row, column), cell in self.cells.items()
        ]
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {**plain, "rows": self.rows, "columns": self.columns, "cells": cells}


def needed(value: str, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns that `pivot` wants of a store to show a value by some names."""
    shown = _shown(value)
    extra = [name for name in names if name.startswith("options.")]
    if shown.by_shift and "corruption" in names:
        extra.append(BY_SHIFT)
    return (*DIMENSIONS, *extra, "status", shown.count, shown.column)


def pivot(
    frame: Frame,
    *,
    rows: Sequence[str] = ("model", "recipe"),
    columns: Sequence[str] = (),
    value: str = "error",
) -> Table:
    """A table of a value, by rows and columns, averaged over seeds, corruptions and severities.

    Nothing else is averaged over, or left unsaid: what differs (the options, the data set, the
    setting, hold-out and test corruptions) becomes one more of the rows, or of the columns where
    each of them has one of its values.

    Args:
        frame: from ``store.select(needed(value, [*rows, *columns]), conditions)``.
        rows: names of `DIMENSIONS`, or ``options.optimizer.lr``.
        columns: the same.
        value: error, online, unadapted, mce, ece, seconds, memory or forgetting.

    >>> job = ("wrn", None, "cifar10", None, "cifar", 0, "test", None, None, "ent", "{}")
    >>> rows = [(*job, "fog", severity, 0, "done", 100, error)
    ...         for severity, error in [(1, 10.0), (5, 30.0)]]
    >>> table = pivot(Frame(columns=needed("error"), rows=rows), rows=["recipe"])
    >>> print(table.cell(("ent",)))
    20.0 (1 of 15)
    """
    return _pivot(frame, rows=rows, columns=columns, value=value, means=False)


def corruption_table(
    frame: Frame, *, rows: Sequence[str] = ("model", "recipe"), value: str = "error"
) -> Table:
    """A column for each corruption in the paper's order, and the means of test and dev ones."""
    return _pivot(frame, rows=rows, columns=["corruption"], value=value, means=True)


def _pivot(
    frame: Frame, *, rows: Sequence[str], columns: Sequence[str], value: str, means: bool
) -> Table:
    names, shown = (*rows, *columns), _shown(value)
    for name in names:
        if name not in DIMENSIONS and not name.startswith("options."):
            raise unknown_name("row or column", name, [*DIMENSIONS, "options.NAME"])
    split = [name for name in names if name in ("corruption", "severity")]
    if shown.whole and split:
        raise AcclimateError(
            f"the {value} is a mean over all corruptions and severities, got it by "
            f"{' and '.join(split)}; leave that out, or show the error"
        )
    frame = _without_shown_options(frame, names)
    if BY_SHIFT in frame.columns:
        frame = by_shift(frame, value=shown.column)
    values = {name: set(frame.column(name)) for name in DIMENSIONS}
    heads = [name for name in columns if name not in AVERAGED]
    rows, columns = list(rows), list(columns)
    for name in DIMENSIONS:
        # What differs and is not averaged over has to be told too.
        told, known = _TOLD_BY.get(name), (*rows, *columns)
        if name in (*known, *AVERAGED) or len(values[name]) < 2:
            continue
        if told in known and _determined(frame, [told], name):
            continue
        # As a row it would leave each row with one full cell.
        (columns if heads and _determined(frame, heads, name) else rows).append(name)
    if means or "corruption" not in (*rows, *columns):
        told_apart = _with_kind_of_frost(frame)
        if told_apart is not None:
            frame = told_apart
            rows.append(_FROST)
    found: Places = defaultdict(list)
    row_of, column_of = _key_of(frame, rows), _key_of(frame, columns)
    for row in frame.rows:
        found[row_of(row), column_of(row)].append(row)
    split = [*rows, *columns]
    cells = _cells(frame, found, split, shown)
    column_keys = ordered(columns, {column for _, column in cells})
    failed = sum(cell.failed for cell in cells.values())
    if means:
        group_at = frame.place("group")
        by_group: Places = defaultdict(list)
        for (row, _), each in found.items():
            group = each[0][group_at]
            by_group[row, (f"mean {group}" if group else "mean",)] += each
        cells |= _cells(frame, by_group, rows, shown)
        column_keys += sorted({column for _, column in by_group})
    alike = [name for name in DIMENSIONS if name not in split and len(values[name]) == 1]
    constant = {name: next(iter(values[name])) for name in alike}
    return Table(
        rows=tuple(rows),
        columns=tuple(columns),
        value=value,
        title=shown.title,
        row_keys=ordered(rows, {row for row, _ in cells}),
        column_keys=column_keys,
        cells=cells,
        constant={name: v for name, v in constant.items() if v not in (None, "{}", 0)},
        severities=tuple(sorted(s for s in values["severity"] if s is not None)),
        digits=shown.digits,
        unit=shown.unit,
        failed=failed,
    )


def _cells(
    frame: Frame, found: Places, split: Sequence[str], shown: Shown
) -> dict[tuple[Key, Key], Cell]:
    about = itemgetter(*(frame.place(name) for name in ("dataset", "preset", "group")))
    take = itemgetter(
        *(frame.place(name) for name in (*AVERAGED, "status", shown.count, shown.column))
    )
    # Hold-out corruptions may have been seen at one severity, where the others were at all.
    of_group = set(map(itemgetter(frame.place("group"), frame.place("severity")), frame.rows))
    every = Counter(group for group, severity in of_group if severity is not None)

    def cell(rows: Sequence[Key]) -> Cell:
        dataset, preset, group = about(rows[0])
        numbers: dict[int, dict[str | None, dict[int | None, float]]] = {}
        images: dict[int, int] = defaultdict(int)
        failed, severe, counted = 0, False, True
        for corruption, severity, seed, status, count, number in map(take, rows):
            severe = severe or severity is not None
            if status != "done":
                failed += 1
            elif number is not None:
                numbers.setdefault(seed, {}).setdefault(corruption, {})[severity] = number
                counted = counted and count is not None
                images[seed] += count or 0
        severities = len(SEVERITIES) if shown.whole else every[group]
        present = {name for each in numbers.values() for name in each}
        # AlexNet's errors are on ImageNet-C, and on what is made as it was.
        of_alexnet = dataset == "imagenet-c" or (dataset, preset) == ("imagenet", "imagenet")
        return cell_of(
            numbers,
            measure=shown.measure if of_alexnet or not shown.whole else lambda _: None,
            shifts=1 if "corruption" in split else _expected_shifts(group, dataset, present),
            severities=1 if "severity" in split or not severe else severities,
            images=images if counted else {},
            failed=failed,
        )

    return {place: cell(rows) for place, rows in found.items()}
