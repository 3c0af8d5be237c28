"""A table of the paper beside what was measured, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

from acclimate.bench.record import Result
from acclimate.paper.computed import computed, extra_cells
from acclimate.paper.measured import Measured, measured
from acclimate.paper.needs import Lack
from acclimate.paper.plan import CellPlan, Scope, TablePlan
from acclimate.paper.tables import NO_RUN, Cell, Table

__all__ = ["STATES", "Comparison", "ComparisonRow", "State", "compare"]

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

State: TypeAlias = Literal["measured", "counted", "can run", "needs data", "not measurable"]
STATES: tuple[State, ...] = get_args(State)
"""What a reader wants to know of a cell first, in fewer words than its status."""

_STATE: Mapping[Status, State] = {
    "measured": "measured",
    "simulated": "counted",
    "counted": "counted",
    "library": "not measurable",
    "can run": "can run",
    "incomplete": "can run",
    "missing": "needs data",
    "published only": "not measurable",
}
_NEVER = ("unstated", "predictions")  # lacks that no data fills

# What a row shows of its cell, in the order of the JSON, around what came of it.
_BEFORE = ("table", "row", "column", "metric", "unit", "published", "published_std", "diverged")
_AFTER = ("small", "erratum", "notes", "difference")


@dataclass(frozen=True, kw_only=True)
class ComparisonRow(Cell):
    """A cell, and what came of it: `Measured`, or why there is nothing.

    Attributes:
        status: how ``measured`` came about, or why it is not there.
        lacks: what has to be got first.
        by_batch: ``measured`` with the statistics of each batch, as the paper predicts.
        jobs: how many are behind it.
        small: what a small version leaves out; empty for the whole.
        notes: what differs from what the paper did, and what else one should know.
    """

    measured: float | None = None
    by_batch: float | None = None
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

    @property
    def state(self) -> State:
        """Measured, measurable with what ``reason`` names, or not measurable for that reason."""
        never = self.status == "missing" and any(lack.kind in _NEVER for lack in self.lacks)
        return "not measurable" if never else _STATE[self.status]

    @property
    def reason(self) -> str:
        """Why there is no measured number, or what one should know of it; in a line."""
        if self.state == "measured":
            return "; ".join(filter(None, [self.small, self.setting, *self.notes]))
        if self.status == "library":
            return "stated by the paper and taken over, nothing to measure"
        if self.status == "published only":
            return f"a number of {self.source}" if self.source else "a method without a recipe here"
        never = [lack.how for lack in self.lacks if lack.kind in _NEVER]
        lacks = [f"weights of {x.what}" if x.kind == "weights" else x.what for x in self.lacks]
        return "; ".join(never or [*lacks, *filter(None, [self.missing])])

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
    return ComparisonRow(**row, jobs=len(plan.jobs), notes=notes, small=plan.small)


def _found(found: Measured) -> dict[str, Any]:
    """A number as a row has it."""
    return {
        "measured": found.value,
        "by_batch": found.by_batch,
        "measured_std": found.std,
        "std_over": found.over,
        "status": "missing" if found.value is None else found.how,
        "missing": found.missing,
        "setting": found.setting,
        "series": found.series,
        "images": found.images,
    }
