"""From a store to the parts of a report: sections with their tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from acclimate.bench import Condition, Store
from acclimate.bench.choices import Choices
from acclimate.bench.record import Result
from acclimate.errors import AcclimateError
from acclimate.report.calibration import reliability_figure
from acclimate.report.choices import by_shift_table, choices_table
from acclimate.report.chosen import file_name
from acclimate.report.details import (
    data_table,
    failures_table,
    notes_table,
    recipes_in_full,
    runs_table,
)
from acclimate.report.facts import facts, why_nothing
from acclimate.report.figure import ReportFigure
from acclimate.report.headline import settings_tables
from acclimate.report.over_time import balance_figure, error_figure
from acclimate.report.practices import Practice, practices
from acclimate.report.published import PublishedPoint, published_figure, published_points
from acclimate.report.rates import rate_figure, rate_groups
from acclimate.report.regret import regret_table
from acclimate.report.settings import Panel, Setting, panels
from acclimate.report.shifts import dumbbell_figure, shift_tables
from acclimate.report.shown import choose
from acclimate.report.streams import stream_balance_figure, stream_error_figure
from acclimate.table import Table

__all__ = ["Report", "Section", "build_report"]

_PANELS = 12
_HEADLINE, _BY_SHIFT = 400, 150

_Found = Mapping[Panel, Mapping[Setting, Sequence[Result]]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report under a heading; ``more`` are tables that are folded away."""

    name: str
    title: str
    about: str = ""
    tables: Sequence[Table] = ()
    more: Sequence[Table] = ()
    figures: Sequence[ReportFigure] = ()
    practices: Sequence[Practice] = ()
    recipes: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """All of it. ``whole`` has the tables of errors with all their rows, for files."""

    store: str
    facts: Sequence[str]
    sections: Sequence[Section]
    whole: Sequence[Table] = field(repr=False, default_factory=tuple)

    @property
    def figures(self) -> list[ReportFigure]:
        """The figures of all sections, each with a name of its own."""
        return [figure for section in self.sections for figure in section.figures]


def build_report(
    store: Store,
    where: Sequence[Condition] = (),
    *,
    published: Sequence[PublishedPoint] | None = None,
    choices: Sequence[Choices] = (),
) -> Report:
    """The report of a store's results, or of those that meet conditions.

    ``published`` are numbers to compare with; None looks for the paper's. ``choices`` are files of
    ``acclimate tune --out``: their options stand for recipes, and their searches are shown.
    """
    results = store.results(where)
    done = [result for result in results if result.status == "done"]
    failed = [result for result in results if result.status == "failed"]
    if not done:
        raise AcclimateError(why_nothing(store, where, failed))
    found = panels(done)
    chosen = [each for panel in found for each in choose(panel, found, choices=choices)]
    points = published_points(done, chosen) if published is None else published
    first, every = settings_tables(store, where, chosen)
    shifts = shift_tables(store, where)
    rest = "narrow it with --where, or write all with --tables DIR"
    scatter = published_figure(points)
    swept = [group for panel in _shown(found) for group in rate_groups(panel, found)]
    searches = _searches(choices, done)
    drawn = partial(_drawn, found, choices)
    sections = [
        Section(
            name="results",
            title="Results",
            tables=[first.first(_HEADLINE, rest=rest)],
            more=[every.first(_HEADLINE, rest=rest)] if len(every.rows) > len(first.rows) else [],
        ),
        Section(name="practices", title="Best practices", about=_PRACTICES,
                practices=practices(found, choices)),
        *([searches] if searches else []),
        drawn("corruptions", "Error by corruption, before and after", dumbbell_figure,
               tables=[table.first(_BY_SHIFT, rest=rest) for table in shifts]),
        drawn("epochs", "Error over the adaptation", error_figure,
               about="Solid: after each epoch, of a pass over all images; epoch 0 has the "
               "recipe's statistics and nothing learnt. Dashed: the online predictions of the "
               "epoch, each made before its update. All with the statistics of each batch, as bn's "
               "line is; the model handed back has those of all images. Of a stream: the online "
               "predictions in each twentieth of it.", of_stream=stream_error_figure),
        _section("rates", "Learning rate and epochs", found,
                 [rate_figure(*group) for group in swept[:_PANELS]], more=len(swept) - _PANELS,
                 about="The error in each cell; yellow where learning lowered it, purple where it "
                 "raised it, against the recipe's statistics with nothing learnt; full colour "
                 "for a quarter of that error or more. Framed: worse than the unadapted model. "
                 "Runs of many epochs have all shorter ones in them."),
        drawn("calibration", "Calibration", reliability_figure,
               about="On the dashed line a model is right as often as it says. ECE: expected "
               "calibration error of the curve, from 0 to 1. Bins of fewer than one image in a "
               "thousand are left out."),
        drawn("balance", "Class balance over time", balance_figure,
               about="How often the most frequent answer is given. A model that collapses answers "
               "ever fewer classes.", of_stream=stream_balance_figure),
        Section(name="published", title="Published and measured",
                about=_compared(points),
                figures=[scatter] if scatter else []),
        Section(name="details", title="Run details", tables=[
            table for table in (runs_table(found), data_table(done), notes_table(done))
            if table.rows
        ], recipes=recipes_in_full(done)),
        Section(name="failures", title="Failed jobs",
                tables=[failures_table(failed)] if failed else [],
                about="" if failed else "None."),
    ]  # fmt: skip
    return Report(
        store=store.path.name,
        facts=[*facts(done, failed, where), *_files(choices)],
        sections=[_named(section) for section in sections],
        whole=(first, every, *shifts, *((*searches.tables, *searches.more) if searches else ())),
    )


_PRACTICES = (
    "What the paper asks of an evaluation of test-time adaptation, and whether it shows in these "
    "results."
)


def _compared(points: Sequence[PublishedPoint]) -> str:
    small = sorted({point.small for point in points if point.small})
    less = f" Some are measured on less than the paper: {'; '.join(small)}." if small else ""
    return f"The numbers of the paper whose runs are in this store.{less}"


def _shown(found: _Found) -> list[Panel]:
    """The panels with the most results, in the order of their names."""
    most = sorted(found, key=lambda p: -sum(len(each) for each in found[p].values()))[:_PANELS]
    return [panel for panel in found if panel in most]


def _searches(choices: Sequence[Choices], done: Sequence[Result]) -> Section | None:
    """What choice files say; None without any."""
    if not choices:
        return None
    stored = {(result.job.model, result.job.recipe) for result in done}
    regret, by_shift = regret_table(choices, done), by_shift_table(choices)
    return Section(
        name="choice",
        title="Choice of options",
        about="From the files of acclimate tune: what was searched, on which images, and what was "
        "chosen.",
        tables=[choices_table(choices, stored), *([regret] if regret else [])],
        more=[by_shift] if by_shift.rows else [],
    )


def _files(choices: Sequence[Choices]) -> list[str]:
    names = ", ".join(map(file_name, choices))
    return [f"options chosen in {names}"] if names else []


class _Draw(Protocol):
    """What draws a panel."""

    def __call__(
        self, panel: Panel, found: _Found, *, choices: Sequence[Choices] = ()
    ) -> ReportFigure | None: ...


def _drawn(
    found: _Found,
    choices: Sequence[Choices],
    name: str,
    title: str,
    draw: _Draw,
    *,
    of_stream: _Draw | None = None,
    about: str = "",
    tables: Sequence[Table] = (),
) -> Section:
    drawings = (
        (of_stream if of_stream and panel.order else draw)(panel, found, choices=choices)
        for panel in _shown(found)
    )
    figures = [figure for figure in drawings if figure is not None]
    return _section(name, title, found, figures, about=about, tables=tables)


def _section(
    name: str,
    title: str,
    found: _Found,
    figures: Sequence[ReportFigure],
    *,
    about: str = "",
    tables: Sequence[Table] = (),
    more: int = 0,
) -> Section:
    left = len(found) - len(_shown(found))
    said = [about] if about else []
    if figures and (left > 0 or more > 0):
        parts = [f"{left:,} of {len(found):,} models and data"] if left > 0 else []
        parts += [f"{more:,} more figures"] if more > 0 else []
        said.append(f"Left out here: {' and '.join(parts)}; --where narrows the report to them.")
    return Section(name=name, title=title, about=" ".join(said), figures=figures, tables=tables)


def _named(section: Section) -> Section:
    """Figures of one kind are numbered, for their files."""
    if len(section.figures) < 2:
        return section
    figures = [replace(f, name=f"{f.name}-{i}") for i, f in enumerate(section.figures, 1)]
    return replace(section, figures=figures)
