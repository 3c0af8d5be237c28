"""A table of the paper beside what was measured, cell by cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from acclimate.bench.choices import Choices
from acclimate.bench.job import UNADAPTED, Job
from acclimate.bench.record import Result
from acclimate.data.imagenet_d import mapping
from acclimate.errors import AcclimateError, unknown_name
from acclimate.methods.registry import get_recipe
from acclimate.metrics import ALEXNET_CORRUPTIONS, ALEXNET_DOMAINS, DOMAINS, rank_correlations
from acclimate.models.architectures import ARCHITECTURES
from acclimate.models.loading import outline
from acclimate.paper.jobs import CellPlan, Scope, longest_runs, needs_no_run, plan_cell
from acclimate.paper.measured import measured
from acclimate.paper.needs import AtHand, Lack
from acclimate.paper.tables import Cell, Table, find_table
from acclimate.presets import find_preset
from acclimate.theory.boundary import deviation, run_grid
from acclimate.theory.settings import FIGURES, MAIN_FIGURE, Settings

__all__ = [
    "Comparison",
    "ComparisonRow",
    "Counted",
    "Status",
    "TablePlan",
    "TheoryRow",
    "compare",
    "counted",
    "extra_rows",
    "jobs_of",
    "plan_tables",
    "theory_rows",
]

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


# What a line shows of its cell, in the order of the JSON, around what came of it.
_BEFORE = ("table", "row", "column", "metric", "unit", "published", "published_std", "diverged")
_AFTER = ("small", "erratum", "notes", "difference")


@dataclass(frozen=True, kw_only=True)
class ComparisonRow(Cell):
    """A cell, and what came of it.

    Attributes:
        measured: None where there is nothing.
        measured_std: the deviation, and ``std_over`` what.
        status: how ``measured`` came about, or why it is not there.
        lacks: what has to be got first.
        missing: which runs are missing, in words.
        setting: of a search, what was best.
        series: of a figure by epochs, the number after each.
        jobs: how many are behind it.
        images: labelled images behind one seed's number.
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
        """Plain values, for JSON: not what the cell says of how it is run."""
        of_cell = {field.name for field in fields(Cell)}
        own = [field.name for field in fields(self) if field.name not in (*of_cell, *_AFTER)]
        plain = {name: getattr(self, name) for name in (*_BEFORE, *own, *_AFTER)}
        plain["lacks"] = [vars(lack).copy() for lack in self.lacks]
        return plain


_COPIED = "copied from the paper, not measured: what acclimate's mCE and mDE divide by"
_PRESET = {"optimizer.lr": "lr", "batch_size": "batch_size", "epochs": "epochs"}


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A number that takes no data.

    Attributes:
        value: None where it could not be had.
        how: "counted" from a model or the label map; "library" where it is a number that the
            library goes by, which compares the library with the paper and measures nothing.
        note: what one should know.
    """

    value: float | None
    how: Literal["counted", "library"] = "counted"
    note: str = ""


def counted(cell: Cell) -> Counted | None:
    """The number of a cell that needs no run; None where it does.

    >>> from acclimate.paper.tables import find_table
    >>> counted(find_table("tbl:groupnorm").cells[0])
    Counted(value=1456858, how='counted', note='')
    """
    try:
        return _counted(cell)
    except AcclimateError as error:
        return Counted(value=None, note=str(error).splitlines()[0])


def _counted(cell: Cell) -> Counted | None:
    if cell.metric == "parameters":
        return Counted(value=_parameters(str(cell.model)))
    if cell.metric == "adapted parameters":
        return Counted(value=_adapted(cell))
    if cell.metric == "classes":
        return _classes(int(cell.column))
    if cell.metric in _PRESET:
        return _preset(cell)
    if cell.model == "paper:alexnet" and cell.shift is not None:
        kept = {**ALEXNET_CORRUPTIONS, **ALEXNET_DOMAINS}[cell.shift]
        return Counted(value=kept, how="library", note=_COPIED)
    return None


@cache
def _model(spec: str) -> nn.Module:
    bare = ARCHITECTURES.get(spec.removeprefix("acclimate:"))
    with torch.device("meta") if bare else nullcontext():  # shapes are enough
        return outline(spec).model


def _parameters(spec: str) -> int:
    return sum(parameter.numel() for parameter in _model(spec).parameters())


def _adapted(cell: Cell) -> int:
    if cell.recipe in (None, UNADAPTED):
        return 0
    model = _model(str(cell.model))
    selected = set(get_recipe(str(cell.recipe), dict(cell.options)).selector.names(model))
    return sum(p.numel() for name, p in model.named_parameters() if name in selected)


def _classes(outputs: int) -> Counted:
    sizes = [len(entry.outputs) for entry in mapping()]
    pairs = f"acclimate's own map has {len(sizes)} classes and {sum(sizes)} pairs"
    return Counted(value=sizes.count(outputs), note=pairs)


def _preset(cell: Cell) -> Counted:
    preset = find_preset(str(cell.recipe), model_name=str(cell.model))
    value = None if preset is None else float(getattr(preset, _PRESET[cell.metric]))
    return Counted(
        value=value, how="library", note="the library's preset; acclimate tune chooses again"
    )


_COUNT = 40
"""Temperatures a side; the paper's figures have 250, which ``acclimate theory`` draws."""

_LOSSES = {"pseudo-labels": True, "entropy": False}


@dataclass(frozen=True, kw_only=True)
class TheoryRow:
    """One panel of a figure: the shares of the grid that collapse and flip."""

    row: str
    collapsed: float
    flipped: float
    note: str


def theory_rows(name: str, *, count: int = _COUNT) -> Iterator[TheoryRow]:
    """The panels of a figure by its name in ``Table.settings``, on a small grid.

    >>> row = next(theory_rows("main", count=8))
    >>> row.row
    'two-point model, pseudo-labels, learning rate 0.1'
    """
    figures = {"main": (MAIN_FIGURE,), **FIGURES}
    if name not in figures:
        raise unknown_name("figure of the theory", name, figures)
    for settings in figures[name]:
        small = replace(settings, count=count)
        for words, stop_gradient in _LOSSES.items():
            yield _theory_row(words, small, stop_gradient=stop_gradient)


def _theory_row(words: str, settings: Settings, *, stop_gradient: bool) -> TheoryRow:
    found = run_grid(settings, stop_gradient=stop_gradient)
    off = np.abs(deviation(found.collapsed, settings, stop_gradient=stop_gradient))
    seen = off[~np.isnan(off)]
    middle = float(np.median(seen)) if len(seen) else None
    distance = "" if middle is None else f"; the edge is {middle:.1f} cells off the line (median)"
    grid = f"{settings.count} × {settings.count} temperatures, {settings.steps:,} steps"
    return TheoryRow(
        row=f"two-point model, {words}, learning rate {settings.lr:g}",
        collapsed=100 * float(found.collapsed.mean()),
        flipped=100 * float(found.flipped.mean()),
        note=f"{grid}{distance}; acclimate theory draws all 250 × 250",
    )


_CORRELATIONS = {"IN-C": 0.54, "IN-R": 0.73}
"""Printed in the text (Appendix D): means over the six domains."""


def extra_rows(table: Table) -> Iterator[ComparisonRow]:
    """Rows for what a figure's ``settings`` name."""
    if "theory" in table.settings:
        yield from _simulated(table)
    if "rank_correlations" in table.settings:
        yield from _correlations(table)


def _simulated(table: Table) -> Iterator[ComparisonRow]:
    for found in theory_rows(table.settings["theory"]):
        flipped = f"{found.flipped:.1f} % end on the wrong side, the steps being too long"
        yield ComparisonRow(
            table=table.label,
            row=found.row,
            column="temperatures that collapse",
            metric="collapse",
            measured=found.collapsed,
            status="simulated",
            notes=(found.note, flipped),
        )


def _correlations(table: Table) -> Iterator[ComparisonRow]:
    source = find_table(table.settings["rank_correlations"])
    columns: dict[str, list[float]] = defaultdict(list)
    for cell in source.cells:
        if cell.published is not None:
            columns[cell.column].append(cell.published)
    domains = {name: columns[name.capitalize()] for name in DOMAINS}
    for name, printed in _CORRELATIONS.items():
        found = rank_correlations(domains, columns[name])
        yield ComparisonRow(
            table=table.label,
            row=f"rank correlation of IN-D with {name}",
            column="mean of domains",
            metric="rank correlation",
            unit="",
            published=printed,
            measured=found.mean,
            status="counted",
            notes=(f"from the errors printed in {source.label}, {found.models} models",),
        )


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
