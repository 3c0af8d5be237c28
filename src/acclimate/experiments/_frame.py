"""Rows with names for their columns: what a store hands to a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from acclimate.errors import unknown_name

__all__ = ["Frame"]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Some columns of some results.

    >>> frame = Frame(columns=("recipe", "error"), rows=[("ent", 7.5), ("bn", 9.0)])
    >>> frame.column("error")
    [7.5, 9.0]
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, column: str) -> int:
        """Where a column stands in a row."""
        if column not in self.columns:
            raise unknown_name("column", column, self.columns)
        return self.columns.index(column)

    def column(self, column: str) -> list[Any]:
        """All values of a column."""
        place = self.place(column)
        return [row[place] for row in self.rows]

    def distinct(self, column: str) -> set[Any]:
        """The values a column has, each once."""
        place = self.place(column)
        return {row[place] for row in self.rows}
