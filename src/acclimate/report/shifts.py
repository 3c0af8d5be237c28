"""Error by corruption: a table of all settings, and before and after as dumbbells."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.bench import Condition, Store, corruption_table
from acclimate.bench.choices import Choices
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
)
from acclimate.report.settings import (
    Found,
    Panel,
    looks,
    mean_over_shifts,
    panel_words,
    setting_words,
    side_by_side,
)
from acclimate.table import Entry, Table, number_entry
from acclimate.text import counted

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
        first = next((cell for cell in cells if cell.value is not None), cells[0])
        entries = [dimension_entry(*pair) for pair in zip(shown.rows, key, strict=True)]
        rows.append([*entries, *(covered_entry(cell, first) for cell in cells)])
        coverage.append(first.missing or "all")
        partial = partial or any(cell.missing for cell in cells if cell.value is not None)
    in_rows = set(coverage) != {"all"}
    if in_rows:
        rows = [[*row, words] for row, words in zip(rows, coverage, strict=True)]
    severities = ", ".join(map(str, shown.severities))
    return Table(
        name="by-corruption" if group == "test" else f"by-corruption-{GROUPS[group].split()[0]}",
        title=f"Top-1 error % of the model returned, {GROUPS[group]} images"
        + (f", severity {severities}" if severities else ""),
        header=[
            *shown.rows,
            *(column[0] or "clean" for column in shown.column_keys),
            *(["coverage"] if in_rows else []),
        ],
        rows=rows,
        notes=[*constant_words(shown), *([COVERAGE] if partial else [])],
    )


def dumbbell_figure(
    panel: Panel,
    found: Found,
    *,
    choices: Sequence[Choices] = (),
) -> Figure | None:
    """The unadapted error and that of each recipe, corruption by corruption."""
    series: dict[str, dict[str, float]] = {}
    page = looks(found)
    drawn = {"unadapted": page[UNADAPTED]}
    shown, left_out = side_by_side(panel, found, choices=choices)
    notes, everything = [], list[Result]()
    for chosen in shown:
        everything += chosen.results
        if chosen.setting.recipe != UNADAPTED:
            name = setting_words(chosen.setting)
            series[name] = _by_shift(chosen.results)
            drawn[name] = page[chosen.setting.recipe]
            notes.append(f"{name}: {chosen.why}; {counted(len(chosen.results), 'result')}.")
    series = {"unadapted": _unadapted(everything), **series}
    series = {name: errors for name, errors in series.items() if errors}
    keys = {(None if name == "clean" else name,) for errors in series.values() for name in errors}
    shifts = [key[0] or "clean" for key in ordered(["corruption"], keys)]
    if not shifts:
        return None
    title = panel_words(panel, found)
    means = [f"{name} {mean(list(errors.values())):.1f} percent" for name, errors in series.items()]
    return Figure(
        name="error-by-corruption",
        title=title,
        description=f"Mean over these corruptions: {', '.join(means)}.",
        spec=dumbbells(series, drawn, rows=shifts),
        table=Table(
            name="error-by-corruption",
            title=f"{title}: mean top-1 error % by corruption",
            header=["corruption", *series],
            rows=[[s, *(number_entry(series[n].get(s)) for n in series)] for s in shifts],
            notes=[*notes, *left_out],
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
    once: dict[tuple[str, int | None], float] = {}
    # The recipe none last: passes of others may be in bfloat16.
    for result in sorted(results, key=lambda each: each.job.recipe == UNADAPTED):
        if result.job.recipe == UNADAPTED:  # a stream has no source model beside it: this tells
            before = _met(result)
        else:
            error = result.unadapted_error
            before = [] if error is None else [(result.corruption or "clean", error)]
        for name, error in before:
            once[name, result.job.severity] = error
    found: dict[str, list[float]] = {}
    for (name, _), error in once.items():
        found.setdefault(name, []).append(error)
    return {name: mean(errors) for name, errors in found.items()}
