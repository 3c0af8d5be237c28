"""Comparisons as text, Markdown and LaTeX, and the list of what can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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


FORMATS: dict[str, Callable[[Comparison], str]] = {
    "text": text,
    "markdown": markdown,
    "latex": latex,
}


def _table(comparison: Comparison) -> Table:
    """Rows and footnotes. What a small version leaves out stands in every line."""
    footnotes = _Footnotes()
    small = [comparison.scope.words] if comparison.scope.small else []
    rows = [[*_words(row, footnotes), *small] for row in comparison.rows]
    header = [*_HEADER, *(["small version"] if small else [])]
    return Table(rows, header, notes=footnotes.lines())


class _Footnotes:
    """Words that many lines share, printed once, by number."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}

    def refer(self, words: Iterable[str]) -> str:
        """The numbers of some words, new ones where they are new."""
        numbers = [self.words.setdefault(each, len(self.words) + 1) for each in words]
        return " ".join(f"[{number}]" for number in dict.fromkeys(numbers))

    def lines(self) -> list[str]:
        return [f"[{number}] {words}" for words, number in self.words.items()]


def _words(row: ComparisonRow, footnotes: _Footnotes) -> list[str]:
    digits, spread = _digits(row), _spread_digits(row)
    published = _number(row.published, digits) + _plus_minus(row.published_std, spread)
    if row.diverged:
        published = "diverged"
    measured = _number(row.measured, digits) + _plus_minus(row.measured_std, spread)
    if row.measured is None:
        measured = row.status
        if row.status == "can run":
            measured += f", {counted(row.jobs, 'job')}"
    elif row.status not in ("measured", "counted"):
        measured += f" ({row.status})"
    difference = row.difference
    notes = [str(lack) for lack in row.lacks if row.status in ("missing", "library")]
    notes += [row.missing] if row.missing and row.status == "incomplete" else []
    notes += [f"the paper: {row.erratum}"] if row.erratum else []
    notes += [f"± is over {row.std_over}"] if row.std_over else []
    return [
        row.row,
        row.column,
        row.metric + (f" {row.unit}" if row.unit else ""),
        published,
        " ".join([measured, *([f"at {row.setting}"] if row.setting else []), *_series(row)]),
        "" if difference is None else _signed(difference, digits),
        footnotes.refer([*notes, *row.notes]),
    ]


def _series(row: ComparisonRow) -> list[str]:
    if not row.series:
        return []
    return ["by epoch: " + ", ".join(f"{point:.1f}" for point in row.series)]


def _digits(row: ComparisonRow) -> int | None:
    """Decimals to print; None where numbers are of any size."""
    if not row.unit and row.metric != "rank correlation":
        return None
    printed = 0 if row.published is None else len(f"{row.published:g}".partition(".")[2])
    return min(2, max(1, printed))


def _spread_digits(row: ComparisonRow) -> int:
    """Decimals of a deviation: as many as the paper prints, which may be more than of its mean."""
    printed = 0 if row.published_std is None else len(f"{row.published_std:g}".partition(".")[2])
    return max(printed, _digits(row) or 1)


def _number(value: float | None, digits: int | None) -> str:
    if value is None:
        return "-"
    if digits is None:
        return f"{value:,.0f}" if value >= 1 else f"{value:g}"
    return f"{value:.{digits}f}"


def _plus_minus(std: float | None, digits: int) -> str:
    return "" if std is None else f" ± {std:.{digits}f}"


def _signed(value: float, digits: int | None) -> str:
    if digits is None:
        return f"{value:+,.0f}" if abs(value) >= 1 or not value else f"{value:+g}"
    return f"{value:+.{digits}f}"


def _title(comparison: Comparison) -> list[str]:
    table = comparison.table
    lines = [f"{table.label}: {table.title}"]
    if table.note:
        lines.append(f"Note: {table.note}")
    if comparison.scope.small:
        lines.append(
            f"SMALL VERSION ({comparison.scope.words}): no measured number below compares with a "
            "published one"
        )
    return lines


def counts(rows: Sequence[ComparisonRow]) -> str:
    """How many lines have which status.

    >>> counts([])
    'no cells'
    """
    found = Counter(row.status for row in rows)
    return ", ".join(f"{number:,} {status}" for status, number in found.items()) or "no cells"


def list_plans(plans: Sequence[TablePlan]) -> str:
    """One line for each: label, title, cells, how many can run here, what it needs.

    >>> from acclimate.paper import Available, find_tables, plan_tables
    >>> plans = plan_tables(find_tables("tab:mapping"), available=Available())
    >>> print(list_plans(plans))
    tab:mapping  How many ImageNet ...  12 cells  all counted here  needs nothing
    """
    rows = []
    for plan in plans:
        cells = counted(len(plan.cells), "cell")
        rows.append([plan.table.label, plan.table.title, cells, _here(plan), _needs(plan)])
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
    simulated = "theory" in plan.table.settings
    if not plan.cells:
        return "simulated here"
    done = {"can run here": plan.can_run, "counted here": plan.counted}
    for words, number in done.items():
        if number == len(plan.cells):
            return f"all {words}"
    parts = [f"{number} {words}" for words, number in done.items() if number]
    parts = parts or ["none can run here"]
    return ", ".join([*parts, *(["the theory is simulated"] if simulated else [])])


def _needs(plan: TablePlan) -> str:
    unstated = [each for each in plan.cells if any(e.kind == "unstated" for e in each.lacks)]
    stated = [each for each in plan.cells if each not in unstated]
    cells = [each.cell for each in stated if each.jobs or each.lacks]
    run = [cell for cell in cells if not cell.published_only]
    names = sorted({name for cell in run for name in (cell.dataset, cell.scored_on) if name})
    models = sorted({cell.model for cell in run if cell.model})
    shown = models if len(models) <= 2 else [f"{len(models)} models"]
    words = "; ".join(", ".join(part) for part in (names, shown) if part)
    weights = len({(cell.model, cell.weights) for cell in run if cell.weights})
    files = f"; {counted(weights, 'weights file')}" if weights else ""
    rest = f"; the settings of {counted(len(unstated), 'cell')} are not stated" if unstated else ""
    return f"needs {words or 'nothing'}{files}{rest}"
