"""Tables of results: rows, columns, and means over the rest that say what they are over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from acclimate.corruption_names import SEVERITIES
from acclimate.errors import unknown_name
from acclimate.experiments._by_shift import BY_SHIFT, by_shift
from acclimate.experiments._cells import Cell, Shifts, cell_of
from acclimate.experiments._frame import Frame
from acclimate.experiments._sorting import (
    AVERAGED,
    DIMENSIONS,
    Gathered,
    Key,
    determined,
    differing,
    expected_shifts,
    gathered,
    ordered,
    without_shown_options,
)
from acclimate.experiments._table import Table
from acclimate.experiments._values import find_value, refuse_part_of_mce

__all__ = [
    "AVERAGED",
    "DIMENSIONS",
    "Cell",
    "Frame",
    "Table",
    "corruption_table",
    "needed",
    "pivot",
]


def needed(value: str, names: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns that `pivot` wants of a store to show a value by some names."""
    shown = find_value(value)
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
    return _tables(frame, rows=rows, columns=columns, value=value)[0]


def corruption_table(
    frame: Frame, *, rows: Sequence[str] = ("model", "recipe"), value: str = "error"
) -> Table:
    """A column for each corruption in the paper's order, and the means of test and dev ones."""
    table, found = _tables(frame, rows=rows, columns=["corruption"], value=value)
    by_group: dict[tuple[Key, Key], Gathered] = {}
    for (row, _), each in found.items():
        group = each.first[frame.place("group")]
        place = (row, (f"mean {group}" if group else "mean",))
        by_group.setdefault(place, Gathered(first=each.first)).merge(each)
    means = _cells(frame, by_group, table.rows, value=value)
    added = sorted({column for _, column in means})
    return replace(table, cells=table.cells | means, column_keys=[*table.column_keys, *added])


def _tables(
    frame: Frame, *, rows: Sequence[str], columns: Sequence[str], value: str
) -> tuple[Table, dict[tuple[Key, Key], Gathered]]:
    """The table, and what its cells were made of."""
    names, shown = (*rows, *columns), find_value(value)
    for name in names:
        if name not in DIMENSIONS and not name.startswith("options."):
            raise unknown_name("row or column", name, [*DIMENSIONS, "options.NAME"])
    refuse_part_of_mce(value, names)
    frame = without_shown_options(frame, names)
    if BY_SHIFT in frame.columns:
        frame = by_shift(frame, value=shown.column)
    values = {name: frame.distinct(name) for name in DIMENSIONS}
    several = [name for name, each in values.items() if len(each) > 1]
    more = differing(frame, names, several)
    heads = [name for name in columns if name not in AVERAGED]
    # As a row it would leave each row with one full cell.
    in_head = [name for name in more if heads and determined(frame, heads, name)]
    rows = (*rows, *(name for name in more if name not in in_head))
    columns = (*columns, *in_head)
    found = gathered(frame, rows, columns, shown.column, count=shown.count)
    severities = tuple(sorted(s for s in values["severity"] if s is not None))
    split = (*rows, *columns)
    cells = _cells(frame, found, split, value=value)
    alike = [name for name in DIMENSIONS if name not in split and len(values[name]) == 1]
    constant = {name: next(iter(values[name])) for name in alike}
    table = Table(
        rows=rows,
        columns=columns,
        value=value,
        title=shown.title,
        row_keys=ordered(rows, {row for row, _ in cells}),
        column_keys=ordered(columns, {column for _, column in cells}),
        cells=cells,
        constant={name: v for name, v in constant.items() if v not in (None, "{}", 0)},
        severities=severities,
        digits=shown.digits,
        unit=shown.unit,
        failed=sum(cell.failed for cell in cells.values()),
    )
    return table, found


def _cells(
    frame: Frame,
    found: Mapping[tuple[Key, Key], Gathered],
    split: Sequence[str],
    *,
    value: str,
) -> dict[tuple[Key, Key], Cell]:
    shown = find_value(value)
    # Hold-out corruptions may have been seen at one severity, where the others were at all.
    of_group = set(map(itemgetter(frame.place("group"), frame.place("severity")), frame.rows))
    every = Counter(group for group, severity in of_group if severity is not None)

    def severities(each: Gathered) -> int:
        if "severity" in split or not each.severe:
            return 1
        return len(SEVERITIES) if shown.whole else every[each.first[frame.place("group")]]

    return {
        place: cell_of(
            each.numbers,
            measure=_nothing if shown.whole and not _of_imagenet_c(frame, each) else shown.measure,
            shifts=1 if "corruption" in split else expected_shifts(frame, each),
            severities=severities(each),
            images=each.images,
            failed=each.failed,
        )
        for place, each in found.items()
    }


def _of_imagenet_c(frame: Frame, found: Gathered) -> bool:
    """AlexNet's errors are on ImageNet-C, and on what is made as it was."""
    dataset, preset = (found.first[frame.place(name)] for name in ("dataset", "preset"))
    return bool(dataset == "imagenet-c" or (dataset == "imagenet" and preset == "imagenet"))


def _nothing(shifts: Shifts) -> None:
    return None
