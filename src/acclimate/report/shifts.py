"""Error by corruption: a table of all settings, and before and after as dumbbells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acclimate.bench import Condition, Store, corruption_table
from acclimate.bench.choices import Choices
from acclimate.bench.job import UNADAPTED
from acclimate.bench.record import Result
from acclimate.bench.table import needed, ordered
from acclimate.metrics.mean import mean
from acclimate.report.axes import Axis, Frame, axes, inside
from acclimate.report.figure import TOP, WIDTH, ReportFigure, finished, padded, short
from acclimate.report.headline import (
    COVERAGE,
    GROUPS,
    constant_words,
    covered_entry,
    dimension_entry,
    done_in,
)
from acclimate.report.looks import Look, looks
from acclimate.report.marks import dot_ink, dots
from acclimate.report.means import mean_over_shifts
from acclimate.report.settings import Panel, Setting, panel_words, setting_words
from acclimate.report.shown import side_by_side
from acclimate.report.svg import element, text
from acclimate.table import Entry, Table, number_entry
from acclimate.text import counted

__all__ = ["dumbbell_figure", "shift_tables"]

_LEFT, _ROW = 132, 22
_APART, _SPREAD = 0.14, 0.7  # of a row: two dots, and all of it


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
        title=f"Top-1 error % of the model handed back, {GROUPS[group]} images"
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
    found: Mapping[Panel, Mapping[Setting, Sequence[Result]]],
    *,
    choices: Sequence[Choices] = (),
) -> ReportFigure | None:
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
    return ReportFigure(
        name="error-by-corruption",
        title=title,
        svg=_draw(series, drawn, shifts, title),
        table=Table(
            name="error-by-corruption",
            title=f"{title}: mean top-1 error % by corruption",
            header=["corruption", *series],
            rows=[[s, *(number_entry(series[n].get(s)) for n in series)] for s in shifts],
            notes=[*notes, *left_out],
        ),
    )


def _draw(
    series: Mapping[str, Mapping[str, float]],
    drawn: Mapping[str, Look],
    shifts: Sequence[str],
    title: str,
) -> str:
    low, high = padded([e for errors in series.values() for e in errors.values()], least=0.0)
    height = _ROW * len(shifts)
    rows = Axis(label="", low=0, high=len(shifts), marks=tuple(
        (len(shifts) - i - 0.5, short(name, 18)) for i, name in enumerate(shifts)
    ))  # fmt: skip
    frame = Frame(
        left=_LEFT, top=TOP, width=WIDTH - _LEFT - 16, height=height,
        x=Axis(label="top-1 error %", low=low, high=high), y=rows,
    )  # fmt: skip
    marks = []
    for i, shift in enumerate(shifts):
        values = [errors[shift] for errors in series.values() if shift in errors]
        y = len(shifts) - i - 0.5
        (a, b), (at, _) = frame.place([min(values), max(values)], [y, y])
        bar = f"M{a:.2f} {at:.2f}H{b:.2f}"
        marks.append(element("path", class_="grid", d=bar, stroke_width=3))
    apart = min(_APART, _SPREAD / len(series))
    for number, (name, errors) in enumerate(series.items()):
        # A little apart: of two with the same error the one below would not be seen.
        middle = 0.5 + apart * (number - (len(series) - 1) / 2)
        places = [
            (errors[s], len(shifts) - i - middle) for i, s in enumerate(shifts) if s in errors
        ]
        marks.append(dots(frame, *zip(*places, strict=True), colour=drawn[name].colour, radius=5,
                          ring=drawn[name].again > 0))  # fmt: skip
    below = TOP + height + 56
    key = [
        element(
            "circle",
            cx=_LEFT + 8,
            cy=below + 18 * i,
            r=5,
            **dot_ink(drawn[name].colour, ring=drawn[name].again > 0),
        )
        + text(_LEFT + 22, below + 18 * i + 4, short(name, 38))
        for i, name in enumerate(series)
    ]
    ends = {name: mean(list(errors.values())) for name, errors in series.items()}
    return finished(
        [inside(frame, marks), axes(frame), *key],
        height=below + 18 * len(series) - 2,
        title=title,
        description="Mean over these corruptions: "
        + ", ".join(f"{name} {value:.1f} percent" for name, value in ends.items()) + ".",
    )  # fmt: skip


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
