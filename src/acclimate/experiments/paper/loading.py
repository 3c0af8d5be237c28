"""Read the tables. A cell inherits from its table, its row and its column, the last one first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeAlias

from acclimate.errors import unknown_name
from acclimate.experiments.paper.records import Cell, Table
from acclimate.metrics.published import (
    ALEXNET_CORRUPTIONS,
    ALEXNET_DOMAINS,
    PublishedRow,
    published_corruptions,
    published_domains,
)

__all__ = ["GROUPS", "Cell", "Table", "find_table", "tables"]

GROUPS = ("main", "ablations", "epochs", "corruptions", "imagenet_d", "domains", "figures")
"""The files, in the order in which tables are listed."""

Entry: TypeAlias = Mapping[str, Any]

_OF_TABLE = ("label", "kind", "title", "metric", "unlabelled", "transposed", "printed_as", "note")
_NOT_OF_CELL = {*_OF_TABLE, "aliases", "settings", "columns", "rows"} - {"metric"}
_NOT_INHERITED = {"values", "reuse", "row_wins"}
_REORDERED = "The paper has the numbers of this row under the wrong heads."


def tables(pattern: str = "*") -> list[Table]:
    """The tables and figures whose label matches a wildcard pattern.

    >>> [table.label for table in tables("tbl:detailed*")]
    ['tbl:detailed-corruptions', 'tbl:detailed-corruptions-cifarc', 'tbl:detailed-uda-results']
    """
    return [table for table in _all() if fnmatchcase(table.label, pattern)]


def find_table(label: str) -> Table:
    """A table by its label in the .tex file.

    >>> cell = find_table("tbl:table-1").cells[2]
    >>> cell.row, cell.column, cell.published, cell.metric, cell.model, cell.recipe
    ('ResNet50 vanilla', 'RPL', 50.5, 'mCE', 'paper:resnet50', 'rpl')
    """
    for table in _all():
        if label in (table.label, *table.aliases):
            return table
    raise unknown_name("table of the paper", label, [table.label for table in _all()])


@cache
def _all() -> tuple[Table, ...]:
    found = []
    for group in GROUPS:
        text = (files("acclimate.experiments.paper") / f"{group}.json").read_text(encoding="utf-8")
        content = json.loads(text)
        found += [_table(entry, group, content.get("define", {})) for entry in content["tables"]]
    return tuple(found)


def _table(entry: Entry, group: str, define: Entry) -> Table:
    columns: list[Entry] = []
    for column in entry.get("columns", ()):
        columns += define[column] if isinstance(column, str) else [column]
    shared = {key: value for key, value in entry.items() if key not in _NOT_OF_CELL}
    shared["table"] = entry["label"]
    rows = entry.get("rows", ())
    return Table(
        **{key: entry[key] for key in _OF_TABLE if key in entry},
        group=group,
        aliases=tuple(entry.get("aliases", ())),
        settings=MappingProxyType(entry.get("settings", {})),
        cells=tuple(cell for row in rows for cell in _cells(shared, row, columns)),
    )


def _cells(shared: Entry, row: Entry, columns: Sequence[Entry]) -> list[Cell]:
    values = _values(shared, row, columns)
    printed = values is not None
    cells = []
    for column, value in zip(columns, values or [None] * len(columns), strict=True):
        if printed and value is None:
            continue  # an empty place
        own = value if isinstance(value, dict) else {"published": value}
        if value == "diverged":
            own = {"diverged": True}
        cells.append(_cell(shared, row, column, own))
    return cells


def _values(shared: Entry, row: Entry, columns: Sequence[Entry]) -> list[Any] | None:
    """What is printed in a row; None in a figure. Some is kept by ``acclimate.metrics``."""
    reuse = row.get("reuse")
    if reuse is None:
        return row.get("values")
    if reuse == "alexnet":
        return [{**ALEXNET_CORRUPTIONS, **ALEXNET_DOMAINS}[row["shift"]]]
    kept = _published(shared["table"], *reuse)
    errors: list[Any] = [kept.errors[c["shift"]] for c in columns if c.get("shift") in kept.errors]
    if kept.reordered:
        errors = [{"published": error, "erratum": _REORDERED} for error in errors]
    return [*errors, kept.printed, *row.get("values", ())]


def _published(label: str, model: str, recipe: str, note: str = "") -> PublishedRow:
    asked = (label, model, recipe, note)
    for row in (*published_corruptions(), *published_domains()):
        if (row.label, row.model, row.recipe, row.note) == asked:
            return row
    raise unknown_name("published row", str(asked), ())


def _cell(shared: Entry, row: Entry, column: Entry, own: Entry) -> Cell:
    layers = [shared, column, row, own] if row.get("row_wins") else [shared, row, column, own]
    merged: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for layer in layers:
        merged |= {key: value for key, value in layer.items() if key not in _NOT_INHERITED}
        if "options" in layer:
            # Options add up. None, or those of a row that wins over its column, start anew.
            anew = layer["options"] is None or (layer is row and row.get("row_wins"))
            options = dict(layer["options"] or {}) if anew else {**options, **layer["options"]}
    search = {key: tuple(tried) for key, tried in merged.pop("search", {}).items()}
    merged |= {"options": MappingProxyType(options), "search": MappingProxyType(search)}
    return Cell(**merged)
