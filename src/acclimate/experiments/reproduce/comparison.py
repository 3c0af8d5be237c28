"""A table of the paper beside what was measured, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acclimate.experiments.choices import Choices
from acclimate.experiments.job import Job
from acclimate.experiments.paper import Cell, Table
from acclimate.experiments.reproduce.at_hand import AtHand
from acclimate.experiments.reproduce.cell_jobs import CellPlan, needs_no_run, plan_cell
from acclimate.experiments.reproduce.comparison_row import ComparisonRow, Status
from acclimate.experiments.reproduce.counted import counted
from acclimate.experiments.reproduce.extra_rows import extra_rows
from acclimate.experiments.reproduce.measured import measured
from acclimate.experiments.reproduce.scope import Scope
from acclimate.experiments.reproduce.searching import longest_runs
from acclimate.experiments.result import Result

__all__ = ["Comparison", "TablePlan", "compare", "jobs_of", "plan_tables"]


@dataclass(frozen=True, kw_only=True)
class TablePlan:
    """A table, and what is run for each of its cells."""

    table: Table
    cells: tuple[CellPlan, ...]
    scope: Scope

    @property
    def can_run(self) -> int:
        """How many cells can be run with what is at hand."""
        return sum(bool(plan.jobs) for plan in self.cells)

    @property
    def counted(self) -> int:
        """How many take no run: numbers of parameters, of classes, and the like."""
        return sum(not plan.jobs and not plan.lacks for plan in self.cells)


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
        return {
            **about,
            "small": self.scope.to_dict(),
            "rows": [row.to_dict() for row in self.rows],
        }


def plan_tables(
    tables: Sequence[Table],
    *,
    hand: AtHand,
    scope: Scope | None = None,
    choices: Choices | None = None,
) -> list[TablePlan]:
    """What is run for tables. Cells that differ in their epochs alone share a run."""
    scope = scope or Scope()
    longest = longest_runs(cell for table in tables for cell in table.to_run)
    return [
        TablePlan(
            table=table,
            cells=tuple(
                plan_cell(cell, hand=hand, scope=scope, choices=choices, longest=longest)
                for cell in table.cells
            ),
            scope=scope,
        )
        for table in tables
    ]


def jobs_of(plans: Iterable[TablePlan]) -> list[Job]:
    """The jobs of tables, each once, those that share model and images next to each other."""
    jobs = {job.key: job for plan in plans for cell in plan.cells for job in cell.jobs}
    return sorted(jobs.values(), key=_shared)


def _shared(job: Job) -> tuple[str, ...]:
    weights = "" if job.weights is None else job.weights.sha256
    return (job.model, weights, job.dataset, job.split or "", job.shift or "", job.recipe)


def compare(plan: TablePlan, results: Mapping[str, Result], *, simulate: bool = True) -> Comparison:
    """A table's cells beside their results, by key of the job.

    Args:
        plan: of the table.
        results: those that are there.
        simulate: also what takes a few seconds and no data: the two-point model.
    """
    rows = [_row(cell, results, plan.scope) for cell in plan.cells]
    extra = tuple(extra_rows(plan.table)) if simulate else ()
    return Comparison(table=plan.table, rows=(*rows, *extra), scope=plan.scope)


def _row(plan: CellPlan, results: Mapping[str, Result], scope: Scope) -> ComparisonRow:
    cell = plan.cell
    about: dict[str, Any] = _about(cell)
    takes_none = counted(cell) if needs_no_run(cell) or plan.lacks else None
    if cell.published_only:
        return ComparisonRow(**about, status="published only", lacks=plan.lacks)
    if takes_none is not None:
        about["notes"] = (*filter(None, [takes_none.note]), *about["notes"])
        status: Status = "missing" if takes_none.value is None else takes_none.how
        return ComparisonRow(**about, measured=takes_none.value, status=status, lacks=plan.lacks)
    about["small"] = scope.words
    if plan.lacks:
        return ComparisonRow(**about, status="missing", lacks=plan.lacks)
    found = measured(plan, results)
    begun = any(job.key in results for job in plan.jobs)
    about |= {"jobs": len(plan.jobs), "notes": (*plan.notes, *found.notes, *about["notes"])}
    if found.value is None:
        status = "incomplete" if begun else "can run"
        return ComparisonRow(**about, status=status, missing=found.missing)
    return ComparisonRow(
        **about,
        measured=found.value,
        measured_std=found.std,
        std_over=found.over,
        status="measured",
        setting=found.setting,
        series=found.series,
        images=found.images,
    )


def _about(cell: Cell) -> dict[str, Any]:
    source = (f"a number of {cell.source}",) if cell.source else ()
    return {**vars(cell), "notes": (*source, *([cell.note] if cell.note else []))}
