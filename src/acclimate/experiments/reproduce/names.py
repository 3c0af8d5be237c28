"""The tables a name stands for: a LaTeX label, with or without its prefix, or a pattern of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from acclimate.errors import AcclimateError, unknown_name
from acclimate.experiments.paper import Table, tables

__all__ = ["find_tables", "only_cells"]


def find_tables(name: str) -> list[Table]:
    """The tables and figures that a name or a wildcard pattern asks for, in the paper's order.

    >>> [table.label for table in find_tables("table-2")]
    ['tbl:table-2']
    >>> [table.label for table in find_tables("fig:2p*")]
    ['fig:2p-momentum', 'fig:2p-standard', 'fig:2p-weight']
    """
    every = tables()
    exact = [table for table in every if name in (table.label, *table.aliases)]
    found = exact or [table for table in every if _fits(table, name)]
    if not found:
        known = [table.label for table in every]
        bare = {_bare(label): label for label in known}
        # A typo in a name without prefix is nearer to the labels without theirs.
        raise unknown_name("table of the paper", name, known if ":" in name else bare)
    return found


def only_cells(
    tables: Sequence[Table], *, rows: Sequence[str] = (), columns: Sequence[str] = ()
) -> list[Table]:
    """Tables with only the cells whose row and column match one of the patterns; none means all.

    >>> [cell.column for cell in only_cells(find_tables("groupnorm"), rows=["*GN"])[0].cells]
    ['parameters', 'w/o adapt', 'RPL', 'ENT']
    """
    if not rows and not columns:
        return list(tables)
    found = [
        replace(
            table,
            cells=tuple(
                cell for cell in table.cells if _any(cell.row, rows) and _any(cell.column, columns)
            ),
        )
        for table in tables
    ]
    if not any(table.cells for table in found):
        for what, patterns in (("row", rows), ("column", columns)):
            known = dict.fromkeys(getattr(cell, what) for t in tables for cell in t.cells)
            if not any(_any(name, patterns) for name in known):
                raise AcclimateError(
                    f"no {what} is called {' or '.join(patterns)}; there are: {'; '.join(known)}"
                )
        raise AcclimateError("no cell has such a row and such a column")
    return [table for table in found if table.cells]


def _any(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _fits(table: Table, pattern: str) -> bool:
    names = (table.label, *table.aliases)
    return any(fnmatchcase(form, pattern) for name in names for form in (name, _bare(name)))


def _bare(label: str) -> str:
    return label.rpartition(":")[2]
