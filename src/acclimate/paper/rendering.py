"""Comparisons as text, Markdown and LaTeX, and the list of what can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from acclimate.paper.comparison import Comparison, ComparisonRow
from acclimate.paper.plan import TablePlan
from acclimate.table import Table
from acclimate.text import counted

__all__ = ["FORMATS", "counts", "list_plans", "listed", "text"]

_HEADER = ("row", "column", "metric", "published", "measured", "difference", "notes")


def text(comparison: Comparison) -> str:
    """Aligned columns, with what is missing and to be known below."""
    table = _table(comparison)
    body = table.text() if table.rows else "no cells"
    return "\n".join([*_title(comparison), "", body])


def markdown(comparison: Comparison) -> str:
    """A table of GitHub's kind."""
    table = _table(comparison)
    title, *about = _title(comparison)
    notes = [f"- {note}" for note in table.notes]
    bare = Table(table.rows, table.header).markdown()
    return "\n".join([f"## {title}", "", *about, "", bare, "", *notes])


def latex(comparison: Comparison) -> str:
    """A plain tabular, which needs the package booktabs; notes are comments."""
    title = "\n".join(f"% {line}" for line in _title(comparison))
    return f"{title}\n{_table(comparison).latex()}"


FORMATS = {"text": text, "markdown": markdown, "latex": latex}


def _title(comparison: Comparison) -> list[str]:
    table, scope = comparison.table, comparison.scope
    lines = [f"{table.label}: {table.title}", *([f"Note: {table.note}"] if table.note else [])]
    if scope.small:
        lines.append(f"SMALL VERSION ({scope.words}): no measured number below compares with a "
                     "published one")  # fmt: skip
    return lines


def _table(comparison: Comparison) -> Table:
    """Rows and footnotes, printed once. What a small version leaves out stands in every line."""
    numbers: dict[str, int] = {}
    small = [comparison.scope.words] if comparison.scope.small else []
    rows = []
    for row in comparison.rows:
        notes = dict.fromkeys(_notes(row))
        refer = [f"[{numbers.setdefault(note, len(numbers) + 1)}]" for note in notes]
        rows.append([*_words(row), " ".join(refer), *small])
    header = [*_HEADER, *(["small version"] if small else [])]
    return Table(rows, header, notes=[f"[{number}] {note}" for note, number in numbers.items()])


def _notes(row: ComparisonRow) -> list[str]:
    return [
        *(str(lack) for lack in row.lacks if row.status in ("missing", "library")),
        *([row.missing] if row.missing and row.status == "incomplete" else []),
        *([f"the paper: {row.erratum}"] if row.erratum else []),
        *([f"± is over {row.std_over}"] if row.std_over else []),
        *row.notes,
    ]


def _words(row: ComparisonRow) -> list[str]:
    """All that is printed of a row but its notes."""
    of_any_size = not row.unit and row.metric != "rank correlation"
    digits = None if of_any_size else min(2, max(1, _decimals(row.published)))
    # As many as the paper prints of a deviation, which may be more than of its mean.
    spread = max(_decimals(row.published_std), digits or 1)
    published = _number(row.published, digits) + _plus_minus(row.published_std, spread)
    measured = _number(row.measured, digits) + _plus_minus(row.measured_std, spread)
    if row.measured is None:
        more = f", {counted(row.jobs, 'job')}" if row.status == "can run" else ""
        measured = f"{row.status}{more}"
    elif row.status not in ("measured", "counted"):
        measured += f" ({row.status})"
    setting = f" at {row.setting}" if row.setting else ""
    series = ", ".join(f"{point:.1f}" for point in row.series)
    return [
        row.row,
        row.column,
        row.metric + (f" {row.unit}" if row.unit else ""),
        "diverged" if row.diverged else published,
        measured + setting + (f" by epoch: {series}" if series else ""),
        "" if row.difference is None else _number(row.difference, digits, sign="+"),
    ]


def _decimals(printed: float | None) -> int:
    return 0 if printed is None else len(f"{printed:g}".partition(".")[2])


def _number(value: float | None, digits: int | None, *, sign: str = "") -> str:
    """With so many decimals; None where numbers are of any size."""
    if value is None:
        return "-"
    if digits is not None:
        return f"{value:{sign}.{digits}f}"
    whole = abs(value) >= 1 or (sign and not value)
    return f"{value:{sign},.0f}" if whole else f"{value:{sign}g}"


def _plus_minus(std: float | None, digits: int) -> str:
    return "" if std is None else f" ± {std:.{digits}f}"


def counts(rows: Sequence[ComparisonRow]) -> str:
    """How many lines have which status.

    >>> counts([])
    'no cells'
    """
    found = Counter(row.status for row in rows)
    return ", ".join(f"{number:,} {status}" for status, number in found.items()) or "no cells"


def list_plans(plans: Sequence[TablePlan]) -> str:
    """A line for each table: its cells, what can run here, and what it needs.

    >>> from acclimate.paper import Available, find_tables, plan_tables
    >>> plans = plan_tables(find_tables("tab:mapping"), available=Available())
    >>> print(list_plans(plans))
    tab:mapping  How many ImageNet ...  12 cells  all counted here  needs nothing
    """
    rows = [
        [plan.table.label, plan.table.title, counted(len(plan.cells), "cell"), _here(plan),
         _needs(plan)]
        for plan in plans
    ]  # fmt: skip
    return Table(rows).text()


def listed(plan: TablePlan) -> dict[str, Any]:
    """The same as plain values, for JSON, with all that is missing."""
    table = plan.table
    missing = dict.fromkeys(str(lack) for cell in plan.cells for lack in cell.lacks)
    return {
        "label": table.label,
        "kind": table.kind,
        "title": table.title,
        "cells": len(table.cells),
        "can_run": plan.can_run,
        "counted": plan.counted,
        "simulated": "theory" in table.settings,
        "datasets": table.datasets,
        "models": table.models,
        "weights": table.weights,
        "missing": list(missing),
    }


def _here(plan: TablePlan) -> str:
    if not plan.cells:
        return "simulated here"
    done = {"can run here": plan.can_run, "counted here": plan.counted}
    for words, number in done.items():
        if number == len(plan.cells):
            return f"all {words}"
    parts = [f"{number} {words}" for words, number in done.items() if number]
    simulated = ["the theory is simulated"] if "theory" in plan.table.settings else []
    return ", ".join([*(parts or ["none can run here"]), *simulated])


def _needs(plan: TablePlan) -> str:
    unstated = sum(any(lack.kind == "unstated" for lack in each.lacks) for each in plan.cells)
    run = [
        each.cell
        for each in plan.cells
        if (each.jobs or each.lacks) and not each.cell.published_only
        and not any(lack.kind == "unstated" for lack in each.lacks)
    ]  # fmt: skip
    names = sorted({name for cell in run for name in (cell.dataset, cell.scored_on) if name})
    models = sorted({cell.model for cell in run if cell.model})
    shown = models if len(models) <= 2 else [f"{len(models)} models"]
    words = "; ".join(", ".join(part) for part in (names, shown) if part)
    weights = len({(cell.model, cell.weights) for cell in run if cell.weights})
    files = f"; {counted(weights, 'weights file')}" if weights else ""
    rest = f"; the settings of {counted(unstated, 'cell')} are not stated" if unstated else ""
    return f"needs {words or 'nothing'}{files}{rest}"
