"""Comparisons as text, Markdown and LaTeX, and the states of all cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from acclimate.bench.job import UNADAPTED
from acclimate.paper.comparison import STATES, Comparison, ComparisonRow
from acclimate.paper.tables import OWN
from acclimate.table import Entry, Number, Table
from acclimate.text import counted

__all__ = ["FORMATS", "by_table", "close", "counts", "listed", "status", "text"]

_HEADER = ("row", "column", "metric", "published", "measured", "by batch", "difference", "notes")
"""By batch: measured with the statistics of each batch rather than of all images."""


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
    if comparison.table.group == OWN:
        return _grid(comparison)
    numbers: dict[str, int] = {}
    small = [comparison.scope.words] if comparison.scope.small else []
    rows = []
    for row in comparison.rows:
        notes = dict.fromkeys(_notes(row))
        refer = [f"[{numbers.setdefault(note, len(numbers) + 1)}]" for note in notes]
        rows.append([*_words(row), " ".join(refer), *small])
    header = [*_HEADER, *(["small version"] if small else [])]
    return Table(rows, header, notes=[f"[{number}] {note}" for note, number in numbers.items()])


def _grid(comparison: Comparison) -> Table:
    """As README has it: a line for each model, what the paper prints in brackets."""
    rows = comparison.rows
    columns, models = (dict.fromkeys(getattr(row, by) for row in rows) for by in ("column", "row"))
    found = {(row.row, row.column): _beside(row) for row in rows}
    lines = [[model, *(found.get((model, each), "–") for each in columns)] for model in models]
    notes = list(dict.fromkeys(note for row in rows for note in _notes(row)))
    return Table(lines, ["model", *columns], notes=[f"{rows[0].metric} in percent", *notes])


def _beside(row: ComparisonRow) -> str:
    ours = row.status if row.measured is None else f"{row.measured:.1f}"
    spread = "" if row.measured_std is None else f" ± {row.measured_std:.1f}"
    return f"{ours}{spread}" + ("" if row.published is None else f" ({row.published:.1f})")


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
        "" if row.by_batch is None else _number(row.by_batch, digits),
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


def by_table(shown: Sequence[Comparison], *, needs: bool = False) -> Table:
    """A line for each table with how many of its cells have which state, and one for all.

    >>> from acclimate.paper import Available, compare, find_tables, plan_tables
    >>> plans = plan_tables(find_tables("tab:mapping"), available=Available())
    >>> for label, _, cells, *_ in by_table([compare(plan, {}) for plan in plans]).rows:
    ...     print(label, cells.text)
    tab:mapping 12
    all 12
    """
    rows: list[list[Entry]] = []
    for each in shown:
        more = [_needs(each)] if needs else []
        rows.append([each.table.label, each.table.title, *_states(each.rows), *more])
    total = _states([row for each in shown for row in each.rows])
    rows.append(["all", "", *total, *([""] if needs else [])])
    heads = ["table", "what it shows", "cells", *STATES, *(["needs"] if needs else [])]
    return Table(rows, heads)


def _states(rows: Sequence[ComparisonRow]) -> list[Number]:
    found = Counter(row.state for row in rows)
    counts = (len(rows), *(found[state] for state in STATES))
    return [Number(f"{count:,}", count) for count in counts]


def status(shown: Sequence[Comparison]) -> Table:
    """A line for each cell: published, measured, the difference; its state, and why."""
    numbers: dict[str, int] = {}
    rows = []
    for comparison in shown:
        for row in comparison.rows:
            known = _words(row) if row.measured is not None else [*_words(row)[:4], "", "", ""]
            reason = row.reason
            if row.state == "measured":
                refer = [f"[{numbers.setdefault(each, len(numbers) + 1)}]" for each in row.notes]
                reason = "; ".join(filter(None, [row.small, " ".join(refer)]))
            rows.append([comparison.table.label, *known, row.state, reason])
    notes = [f"[{number}] {note}" for note, number in numbers.items()]
    return Table(rows, ["table", *_HEADER[:-1], "state", "needs, why, or notes"], notes=notes)


def close(shown: Sequence[Comparison]) -> str:
    """How near measured numbers are to the published: a point, or a twentieth of what is gained.

    >>> close([])
    'No number is measured.'
    """
    rows = [row for each in shown for row in each.rows]
    before = {_same_images(row): row.published for row in rows if row.recipe == UNADAPTED}
    found = [row for row in rows if row.state == "measured" and row.difference is not None]
    if not found:
        return "No number is measured."

    def is_near(row: ComparisonRow) -> bool:
        unadapted = before.get(_same_images(row))
        gain = 0.0 if unadapted is None else abs(unadapted - (row.published or 0.0))
        return abs(row.difference or 0.0) <= max(1.0, gain / 20)

    near, few = sum(map(is_near, found)), sum(bool(row.small) for row in found)
    some = f" {few:,} are of fewer images." if few else ""
    return (
        f"Of {len(found):,} measured numbers {near:,} ({100 * near / len(found):.0f} %) are within "
        f"one point, or 5 % of the published reduction, of the published.{some}"
    )


def _same_images(row: ComparisonRow) -> tuple[object, ...]:
    what = (row.metric, row.model, row.weights, row.dataset, row.split, row.shift, row.severity)
    return (*what, row.scored_on)


def listed(comparison: Comparison) -> dict[str, Any]:
    """A table's counts as plain values, for JSON, with all that is missing."""
    table = comparison.table
    missing = dict.fromkeys(str(lack) for row in comparison.rows for lack in row.lacks)
    found = Counter(row.state for row in comparison.rows)
    return {
        "label": table.label,
        "kind": table.kind,
        "title": table.title,
        "cells": len(table.cells),
        **{state.replace(" ", "_"): found[state] for state in STATES},
        "simulated": "theory" in table.settings,
        "datasets": table.datasets,
        "models": table.models,
        "weights": table.weights,
        "missing": list(missing),
    }


def _needs(comparison: Comparison) -> str:
    """What would have to be there for all cells that are run."""
    unstated = [row for row in comparison.rows if any(x.kind == "unstated" for x in row.lacks)]
    run = [
        row
        for row in comparison.rows
        if row.status in ("measured", "can run", "incomplete", "missing") and row not in unstated
    ]
    names = sorted({name for row in run for name in (row.dataset, row.scored_on) if name})
    models = sorted({row.model for row in run if row.model})
    shown = models if len(models) <= 2 else [f"{len(models)} models"]
    words = "; ".join(", ".join(part) for part in (names, shown) if part)
    weights = len({(row.model, row.weights) for row in run if row.weights})
    files = f"; {counted(weights, 'weights file')}" if weights else ""
    rest = f"; the settings of {counted(len(unstated), 'cell')} are not stated" if unstated else ""
    return f"{words or 'nothing'}{files}{rest}"
