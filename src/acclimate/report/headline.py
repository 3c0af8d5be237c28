"""The first tables: a row for each model and recipe, before and after; and every setting."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from acclimate.bench import Cell, Condition, Store, pivot
from acclimate.bench import Table as ResultTable
from acclimate.bench.job import UNADAPTED
from acclimate.bench.record import Result
from acclimate.bench.store import COLUMNS, Frame, row_of
from acclimate.bench.table import needed
from acclimate.report.settings import Shown
from acclimate.table import Entry, Table, number_entry
from acclimate.text import option_words

__all__ = [
    "COVERAGE", "GROUPS", "constant_words", "covered_entry", "dimension_entry", "done_in",
    "settings_tables",
]  # fmt: skip

GROUPS = {"test": "test", "none": "clean or other", "dev": "hold-out"}
"""The groups of corruptions as conditions have them, and in words; means never mix them."""

_ROWS = ("model", "recipe")
_UNSAID = {"coverage": "all", "mCE %": "–"}
"""Columns that are left out where every row has just this."""
_ABOUT = (
    "Top-1 error in percent, averaged over severities, then corruptions, then seeds; ± is the "
    "standard deviation over seeds. “After” is of the model returned, “online” of the "
    "predictions made before each update of the first epoch, “unadapted” of the source model on "
    "the same images, “BN” of the recipe bn.",
    "Relative reduction: by how much of the unadapted error the error fell; below zero it rose.",
)
COVERAGE = (
    "Coverage: 12 of 15 is a mean over that many of the shifts it is meant to be over; parts are "
    "shifts at a severity, from a seed. 2 of 3 seeds: a mean over those that ran on the most, and "
    "on the same. A number that covers another share than its row says so."
)
"""What the words beside a mean tell that is not over everything."""

_Key: TypeAlias = tuple[Any, ...]
_Columns: TypeAlias = Mapping[str, Any]


def done_in(group: str, where: Sequence[Condition]) -> list[Condition]:
    """Conditions for the done results of a group of corruptions."""
    return [*where, Condition("status", ("done",)), Condition("group", (group,))]


def settings_tables(
    store: Store, where: Sequence[Condition], chosen: Sequence[Shown]
) -> tuple[Table, Table]:
    """A row for each recipe at the setting that stands for it, and a row for each setting.

    What else tells results apart and must not be averaged over has a column of its own.
    """
    mixed = [_columns(result) for each in chosen if each.mixed for result in each.results]
    done = store.select(needed("error"), [*where, Condition("status", ("done",))])
    whole = pivot(_with(done, mixed))
    names = [name for name in whole.rows if name != "group"]
    lines = {
        (group, *key): entries
        for group in GROUPS
        for key, entries in _lines(store, where, group, names, mixed)
    }
    every = next(iter(lines.values()))
    header = [name for name in every
              if any(line[name] != _UNSAID.get(name) for line in lines.values())]  # fmt: skip
    rows = {key: [line[name] for name in header] for key, line in lines.items()}
    first = (_columns(each.results[0]) for each in chosen)
    picked = dict.fromkeys((_group(row), *(row[name] for name in names)) for row in first)
    same = constant_words(whole)
    why = sorted({each.why for each in chosen if each.why != "the only setting"})
    how = [f"Of several settings of a recipe: {'; or '.join(why)}."] if why else []
    missing = [COVERAGE] if "coverage" in header else []
    return (
        Table(
            name="headline",
            title="Mean error by model and recipe, before and after",
            header=header,
            rows=[rows[key] for key in picked if key in rows],
            notes=(*same, *how, *_ABOUT, *missing),
        ),
        Table(
            name="settings",
            title="Every setting",
            header=header,
            rows=list(rows.values()),
            notes=(*same, *missing),
        ),
    )


def _columns(result: Result) -> _Columns:
    """A result's values as a store has them."""
    return dict(zip((name.strip('"') for name in COLUMNS), row_of(result), strict=True))


def _group(row: _Columns) -> str:
    return str(row["group"] or "none")


def _with(frame: Frame, more: Sequence[_Columns]) -> Frame:
    rows = [tuple(row[name] for name in frame.columns) for row in more]
    return replace(frame, rows=[*frame.rows, *rows])


def _lines(
    store: Store,
    where: Sequence[Condition],
    group: str,
    names: Sequence[str],
    mixed: Sequence[_Columns],
) -> Iterator[tuple[_Key, dict[str, Entry]]]:
    """The rows of a group of corruptions: what they are of, and their entries by column."""
    own = [row for row in mixed if _group(row) == group]

    def frame(value: str) -> Frame:
        return _with(store.select(needed(value), done_in(group, where)), own)

    errors = frame("error")
    if not len(errors):
        return
    after = pivot(errors, rows=names)
    online, before, mce = (
        pivot(frame(value), rows=names, value=value) for value in ("online", "unadapted", "mce")
    )
    baselines = _Baselines(errors, after)
    for key in after.row_keys:
        about = dict(zip(after.rows, key, strict=True))
        cell = after.cell(key)
        # Of the recipe none, so that all rows have one number: passes of others may be in bfloat16.
        source, own_source = baselines.beside(key, UNADAPTED), before.cell(key)
        if own_source.value is not None and not _covers_as(source, cell):
            source = own_source
        entries = {
            **{name: dimension_entry(name, about[name]) for name in _ROWS},
            # Nothing is drawn where nothing is adapted.
            "unadapted %": covered_entry(replace(source, std=None), cell),
            "BN %": covered_entry(baselines.beside(key, "bn"), cell),
            "online %": covered_entry(online.cell(key), cell),
            "after %": covered_entry(cell, cell),
            "relative reduction %": _reduction(source, cell, about["recipe"]),
            "coverage": cell.missing or "all",
            "seeds": number_entry(cell.seeds or None, digits=0),
            "labelled images": number_entry(cell.images, digits=0),
            "corruptions": _images(group, baselines.places[key]),
            **{name: dimension_entry(name, about[name]) for name in names if name not in _ROWS},
            "mCE %": covered_entry(mce.cell(key), cell),
        }
        yield tuple(about[name] for name in names), entries


_Place: TypeAlias = tuple[str | None, int | None]
"""A corruption and a severity."""


class _Baselines:
    """What a recipe is compared with: the cells of another, on the places the recipe ran on."""

    def __init__(self, frame: Frame, table: ResultTable) -> None:
        self._frame, self._table = frame, table
        self._rows: dict[_Key, list[tuple[_Place, _Key]]] = {}
        keys = zip(*map(frame.column, table.rows), strict=True)
        places = zip(frame.column("corruption"), frame.column("severity"), strict=True)
        for key, place, row in zip(keys, places, frame.rows, strict=True):
            self._rows.setdefault(key, []).append((place, row))
        self.places = {key: {place for place, _ in rows} for key, rows in self._rows.items()}
        self._found: dict[_Key, _Key] = {}
        for key in table.row_keys:  # without options, where a recipe has both
            self._found.setdefault(self._compared(key), key)

    def beside(self, key: _Key, recipe: str) -> Cell:
        """The cell of a recipe for the row of ``key``."""
        other = self._found.get((recipe, *self._compared(key)[1:]))
        if other is None:
            return Cell(value=None)
        cell, places = self._table.cell(other), self.places[key]
        if self.places[other] <= places:
            return cell  # if of fewer, its coverage stands beside it
        # A mean over all severities says nothing beside one over the highest.
        same = [row for place, row in self._rows[other] if place in places]
        if not same:
            return Cell(value=None)
        few = pivot(replace(self._frame, rows=same), rows=self._table.rows).cell(other)
        return replace(cell, value=few.value, std=few.std, shifts=few.shifts, parts=few.parts,
                       images=few.images)  # fmt: skip

    def _compared(self, key: _Key) -> _Key:
        """A row's recipe, and what it shares with those it is compared with: all but options."""
        about = dict(zip(self._table.rows, key, strict=True))
        about.pop("options", None)
        return (about.pop("recipe"), *about.values())


def _images(group: str, places: Collection[_Place]) -> str:
    severities = sorted({severity for _, severity in places if severity is not None})
    words = f", severity {', '.join(map(str, severities))}" if severities else ""
    return GROUPS[group] + words


def _reduction(source: Cell, cell: Cell, recipe: str) -> Entry:
    if recipe == UNADAPTED or not source.value or cell.value is None:
        return "–"
    return number_entry(100 * (source.value - cell.value) / source.value)


def covered_entry(cell: Cell, row: Cell) -> Entry:
    """A number; what it covers stands beside it only where that is not what its row covers."""
    if cell.value is None:
        return "–"
    if _covers_as(cell, row):
        return number_entry(cell.value, text=replace(cell, expected_parts=0, all_seeds=0).text())
    more = " (all)" if row.missing and not cell.missing else ""
    return number_entry(cell.value, text=cell.text() + more)


def _covers_as(one: Cell, other: Cell) -> bool:
    """Whether two cells are over the same share; one may be of more seeds, if all of them."""
    return (
        (one.shifts, one.expected_shifts) == (other.shifts, other.expected_shifts)
        and one.parts * other.expected_parts == other.parts * one.expected_parts
        and one.seeds * other.all_seeds == other.seeds * one.all_seeds
    )


def dimension_entry(name: str, value: Any) -> Entry:
    """What tells a row apart, in words.

    >>> dimension_entry("options", '{"epochs":5}'), dimension_entry("images", None)
    ('epochs=5', 'all')
    """
    if name == "options":
        return option_words(json.loads(value).items(), none="–")
    if value is None:
        return {"images": "all", "weights": "its own", "corruption": "clean"}.get(name, "–")
    return number_entry(value, digits=0) if isinstance(value, int) else str(value)


def constant_words(table: ResultTable) -> list[str]:
    """What is the same in all of a table."""
    words = []
    for name, value in table.constant.items():
        if name in (*table.rows, "severity", "group"):
            continue
        told = option_words(json.loads(value).items()) if name == "options" else value
        words.append(f"{value:,} images of each shift" if name == "images" else f"{name} {told}")
    return [f"Throughout: {', '.join(words)}."] if words else []
