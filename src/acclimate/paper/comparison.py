"""A table of the paper beside what was measured, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from acclimate.bench.record import Result
from acclimate.paper.computed import computed, extra_cells
from acclimate.paper.measured import Measured, measured
from acclimate.paper.needs import Lack
from acclimate.paper.plan import NO_RUN, CellPlan, Scope, TablePlan
from acclimate.paper.tables import Cell, Table

__all__ = ["Comparison", "ComparisonRow", "compare"]

Status: TypeAlias = Literal[
    "measured",  # from runs
    "simulated",  # from the two-point model
    "counted",  # from a model's layers, the label map, printed numbers
    "library",  # a number the library goes by: nothing was measured
    "can run",  # all is there
    "incomplete",  # runs are missing, or failed
    "missing",  # something has to be got first
    "published only",
]

# What a row shows of its cell, in the order of the JSON, around what came of it.
_BEFORE = ("table", "row", "column", "metric", "unit", "published", "published_std", "diverged")
_AFTER = ("small", "erratum", "notes", "difference")


@dataclass(frozen=True, kw_only=True)
class ComparisonRow(Cell):
    """A cell, and what came of it: `Measured`, or why there is nothing.

    Attributes:
        status: how ``measured`` came about, or why it is not there.
        lacks: what has to be got first.
        jobs: how many are behind it.
        small: what a small version leaves out; empty for the whole.
        notes: what differs from what the paper did, and what else one should know.
    """

    measured: float | None = None
    measured_std: float | None = None
    std_over: str | None = None
    status: Status
    lacks: tuple[Lack, ...] = ()
    missing: str = ""
    setting: str = ""
    series: tuple[float, ...] = ()
    jobs: int = 0
    images: int | None = None
    small: str = ""
    notes: tuple[str, ...] = ()

    @property
    def published_std(self) -> float | None:
        """The deviation that the paper prints."""
        return self.std

    @property
    def difference(self) -> float | None:
        """Measured minus published; None for what the library goes by, which measures nothing.

        >>> ComparisonRow(table="t", row="r", column="c", metric="error", status="measured",
        ...               published=18.0, measured=17.5).difference
        -0.5
        """
        if self.published is None or self.measured is None or self.status == "library":
            return None
        return self.measured - self.published

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: not what the cell states of how it is run."""
        of_cell = {field.name for field in fields(Cell)}
        own = [field.name for field in fields(self) if field.name not in (*of_cell, *_AFTER)]
        plain = {name: getattr(self, name) for name in (*_BEFORE, *own, *_AFTER)}
        plain["lacks"] = [vars(lack).copy() for lack in self.lacks]
        return plain


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A table with its rows."""

    table: Table
    rows: tuple[ComparisonRow, ...]
    scope: Scope

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = ("label", "kind", "title", "metric", "note")
        about = {name: getattr(self.table, name) for name in names}
        rows = [row.to_dict() for row in self.rows]
        return {**about, "small": self.scope.to_dict(), "rows": rows}


def compare(plan: TablePlan, results: Mapping[str, Result], *, simulate: bool = True) -> Comparison:
    """A table's cells beside their results, by key of the job.

    ``simulate``: also what takes a few seconds and no data, the two-point model.
    """
    rows = [_row(cell, results, plan.scope) for cell in plan.cells]
    for cell, found in extra_cells(plan.table) if simulate else ():
        rows.append(ComparisonRow(**vars(cell), **_found(found), notes=found.notes))
    return Comparison(table=plan.table, rows=tuple(rows), scope=plan.scope)


def _row(plan: CellPlan, results: Mapping[str, Result], scope: Scope) -> ComparisonRow:
    cell = plan.cell
    source = f"a number of {cell.source}" if cell.source else None
    notes = tuple(filter(None, [source, cell.note]))
    row: dict[str, Any] = {**vars(cell), "lacks": plan.lacks}
    if cell.published_only:
        return ComparisonRow(**row, notes=notes, status="published only")
    free = computed(cell) if cell.metric in NO_RUN or plan.lacks else None
    if free is not None:
        return ComparisonRow(**row, **_found(free), notes=(*free.notes, *notes))
    if plan.lacks:
        return ComparisonRow(**row, notes=notes, small=scope.words, status="missing")
    found = measured(plan, results)
    row |= _found(found)
    if found.value is None:
        begun = any(job.key in results for job in plan.jobs)
        row["status"] = "incomplete" if begun else "can run"
    notes = (*plan.notes, *found.notes, *notes)
    return ComparisonRow(**row, jobs=len(plan.jobs), notes=notes, small=scope.words)


def _found(found: Measured) -> dict[str, Any]:
    """A number as a row has it."""
    return {
        "measured": found.value,
        "measured_std": found.std,
        "std_over": found.over,
        "status": "missing" if found.value is None else found.how,
        "missing": found.missing,
        "setting": found.setting,
        "series": found.series,
        "images": found.images,
    }
