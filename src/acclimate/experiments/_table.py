"""A pivot table, cell by cell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from acclimate.experiments._cells import Cell
from acclimate.experiments._sorting import Key

__all__ = ["Table"]

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
