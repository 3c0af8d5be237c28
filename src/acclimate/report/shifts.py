"""Error by corruption: a table of all settings, and before and after as dumbbells."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.bench import Condition, Store, corruption_table
from acclimate.bench.job import UNADAPTED
from acclimate.bench.record import Result
from acclimate.bench.table import needed, ordered
from acclimate.metrics.mean import mean
from acclimate.report.charts import Figure, dumbbells
from acclimate.report.headline import (
    COVERAGE,
    GROUPS,
    constant_words,
    covered_entry,
    dimension_entry,
    done_in,
)  # fmt: skip
from acclimate.report.settings import View, mean_over_shifts
from acclimate.table import Entry, Table, number_entry

__all__ = ["dumbbell_figure", "shift_tables"]


def shift_tables(store: Store, where: Sequence[Condition] = ()) -> list[Table]:
    """A column for each corruption, a row for each setting; a table for each group of them."""
    tables = (_shift_table(store, where, group) for group in GROUPS)
    return [table for table in tables if table is not None]


def _shift_table(store: Store, where: Sequence[Condition], group: str) -> Table | None:
    frame = store.select(needed("error", ["corruption"]), done_in(group, where))
    if not len(frame):
        return None
    shown = corruption_table(frame)
    rows: list[list[Entry]] = []
    coverage: list[str] = []
    partial = False
    for key in shown.row_keys:
        cells = [shown.cell(key, column) for column in shown.column_keys]
        there = [cell for cell in cells if cell.value is not None]
        first = (there or cells)[0]
        entries = [dimension_entry(*pair) for pair in zip(shown.rows, key, strict=True)]
        rows.append([*entries, *(covered_entry(cell, first) for cell in cells)])
        coverage.append(first.missing or "all")
        partial = partial or any(cell.missing for cell in there)
    header = [*shown.rows, *(column[0] or "clean" for column in shown.column_keys)]
    if set(coverage) != {"all"}:
        rows = [[*row, words] for row, words in zip(rows, coverage, strict=True)]
        header.append("coverage")
    severities = ", ".join(map(str, shown.severities))
    return Table(
        name="by-corruption" if group == "test" else f"by-corruption-{GROUPS[group].split()[0]}",
        title=f"Top-1 error % of the model returned, {GROUPS[group]} images"
        + (f", severity {severities}" if severities else ""),
        header=header,
        rows=rows,
        notes=[*constant_words(shown), *([COVERAGE] if partial else [])],
    )


def dumbbell_figure(view: View) -> Figure | None:
    """The unadapted error and that of each recipe, corruption by corruption."""
    adapted = [shown for shown in view.alike if shown.setting.recipe != UNADAPTED]
    drawn = {"unadapted": view.looks[UNADAPTED]}
    drawn |= {shown.name: view.looks[shown.setting.recipe] for shown in adapted}
    found = {"unadapted": _unadapted([r for shown in view.alike for r in shown.results])}
    found |= {shown.name: _by_shift(shown.results) for shown in adapted}
    series = {name: errors for name, errors in found.items() if errors}
    keys = {(None if name == "clean" else name,) for errors in series.values() for name in errors}
    shifts = [key[0] or "clean" for key in ordered(["corruption"], keys)]
    if not shifts:
        return None
    means = [f"{name} {mean(list(errors.values())):.1f} percent" for name, errors in series.items()]
    return Figure(
        name="error-by-corruption",
        title=view.title,
        description=f"Mean over these corruptions: {', '.join(means)}.",
        spec=dumbbells(series, drawn, rows=shifts),
        table=Table(
            name="error-by-corruption",
            title=f"{view.title}: mean top-1 error % by corruption",
            header=["corruption", *series],
            rows=[[s, *(number_entry(series[n].get(s)) for n in series)] for s in shifts],
            notes=[*(shown.note for shown in adapted), *view.left_out],
        ),
    )


def _by_shift(results: Sequence[Result]) -> dict[str, float]:
    """The mean over severities and seeds, by corruption."""
    found: dict[str, list[tuple[Result, float]]] = {}
    for result in results:
        for name, error in _met(result):
            found.setdefault(name, []).append((result, error))
    return {name: mean_over_shifts(each) for name, each in found.items()}


def _met(result: Result) -> list[tuple[str, float]]:
    """The error on each corruption: a stream through several has met them all."""
    parts = result.record.by_shift
    if len(parts) < 2:
        return [] if result.error is None else [(result.corruption or "clean", result.error)]
    known = {name: [e for e in errors if e is not None] for name, errors in parts.items()}
    return [(name, mean(errors)) for name, errors in known.items() if errors]


def _unadapted(results: Sequence[Result]) -> dict[str, float]:
    """The same of the source model, which results of a shift have measured again."""
    once: dict[str, dict[int | None, float]] = {}
    # The recipe none last: passes of others may be in bfloat16.
    for result in sorted(results, key=lambda each: each.job.recipe == UNADAPTED):
        before = []
        if result.job.recipe == UNADAPTED:  # a stream has no source model beside it: this tells
            before = _met(result)
        elif result.unadapted_error is not None:
            before = [(result.corruption or "clean", result.unadapted_error)]
        for name, error in before:
            once.setdefault(name, {})[result.job.severity] = error
    return {name: mean(list(errors.values())) for name, errors in once.items()}
