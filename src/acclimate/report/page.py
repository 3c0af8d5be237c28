"""From a store to one HTML page that needs nothing else: sections with their tables and charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from acclimate.bench import Condition, Store
from acclimate.bench.choices import Choices
from acclimate.bench.record import Result
from acclimate.errors import AcclimateError
from acclimate.report.charts import DARK, LIGHT, Figure, browser_script, why_no_charts
from acclimate.report.choices import by_shift_table, choices_table, file_name, regret_table
from acclimate.report.figures import (
    balance_figure,
    dumbbell_figure,
    error_figure,
    rate_figure,
    rate_groups,
    reliability_figure,
)
from acclimate.report.practices import Practice, practices
from acclimate.report.published import PublishedPoint, published_figure, published_points
from acclimate.report.ranking import (
    corruption_pivot,
    headline_title,
    ranked_bars,
    ranking_table,
    setting_pivot,
    standings,
    summary_sentence,
)
from acclimate.report.settings import Found, Panel, View, panels, view
from acclimate.report.tables import (
    data_table,
    failures_table,
    notes_table,
    recipes_in_full,
    runs_table,
    settings_tables,
    shift_tables,
)
from acclimate.report.templates import rendered
from acclimate.table import Table
from acclimate.text import counted

__all__ = ["Report", "build_report", "report_page"]

_PANELS = 12
_HEADLINE, _BY_SHIFT, _DATA = 400, 60, 150
_REST = "narrow it with --where, or write all with --tables DIR"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report; the page has its introduction, ``more`` are tables folded away."""

    name: str
    title: str
    lead: str = ""
    note: str = ""
    tables: Sequence[Table] = ()
    more: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    practices: Sequence[Practice] = ()
    recipes: Sequence[tuple[str, str]] = ()

    @property
    def empty(self) -> bool:
        """Whether it has nothing to show."""
        shown = (self.lead, self.note, self.tables, self.figures, self.practices, self.recipes)
        return not any(shown)


@dataclass(frozen=True, kw_only=True)
class Report:
    """All of it, under a title in words.

    ``whole`` has the tables of errors with all their rows, for files.
    """

    store: str
    title: str
    facts: Sequence[str]
    sections: Sequence[Section]
    whole: Sequence[Table] = field(repr=False, default_factory=tuple)

    @property
    def figures(self) -> list[Figure]:
        """The figures of all sections, each with a name of its own."""
        return [figure for section in self.sections for figure in section.figures]


def report_page(report: Report) -> str:
    """The page, with its style, its scripts and its data in it; without vl-convert, tables alone.

    >>> report = Report(store="sweep.db", title="2 recipes", facts=["2 results"], sections=[])
    >>> page = report_page(report)
    >>> page[:15], "<h1>2 recipes</h1>" in page
    ('<!doctype html>', True)
    """
    missing = why_no_charts()
    return rendered(
        "page.html",
        report=report,
        missing=missing,
        script="" if missing or not report.figures else browser_script(),
        themes={"light": LIGHT, "dark": DARK},
        rows_of_data=_DATA,
    )


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
        raise AcclimateError(_why_nothing(store, where, failed))
    found = panels(done)
    views = {panel: view(panel, found, choices=choices) for panel in found}
    chosen = [shown for each in views.values() for shown in each.chosen]
    points = published_points(done, chosen) if published is None else published
    first, every = settings_tables(store, where, chosen)
    shifts = shift_tables(store, where)
    scatter = published_figure(points)
    small = "; ".join(sorted({point.small for point in points if point.small}))
    drawn = _largest(found)
    swept = [group for panel in drawn for group in rate_groups(panel, found)]
    searches = _searches(choices, done)

    def section(
        name: str,
        title: str,
        draw: Callable[[View], Figure | None],
        tables: Sequence[Table] = (),
        folded: Sequence[Table] = (),
    ) -> Section:
        """With a figure for each model and data."""
        figures = [figure for panel in drawn if (figure := draw(views[panel])) is not None]
        shown = _figures(name, title, figures, found, tables=tables)
        return replace(shown, more=folded) if folded else shown

    rates = [rate_figure(*group) for group in swept[:_PANELS]]
    compared = [views[panel] for panel in drawn]
    by_setting = setting_pivot(compared)
    pivots = [table for each in compared if (table := corruption_pivot(each)) is not None]
    ranked = [view for view in compared if len(standings(view)) > 1]
    sections = [
        Section(
            name="summary",
            title="Summary",
            lead=summary_sentence(compared),
            tables=[by_setting] if by_setting else [ranking_table(view) for view in ranked[:1]],
            figures=_numbered([replace(ranked_bars(v), wide=len(ranked) == 1) for v in ranked]),
        ),
        Section(
            name="results",
            title="Before and after",
            tables=[first.first(_HEADLINE, rest=_REST)],
            more=[every.first(_HEADLINE, rest=_REST)] if len(every.rows) > len(first.rows) else [],
        ),
        Section(name="practices", title="Best practices", practices=practices(found, choices)),
        *searches,
        section("corruptions", "Error by corruption", dumbbell_figure, _distinct(pivots),
                [table.first(_BY_SHIFT, rest=_REST) for table in shifts]),
        section("epochs", "Error over the adaptation", error_figure),
        _figures("rates", "Learning rate and epochs", rates, found, more=len(swept) - _PANELS),
        section("calibration", "Calibration", reliability_figure),
        section("balance", "Class balance over time", balance_figure),
        Section(
            name="published",
            title="Published and measured",
            note=f"Some are measured on less than the paper: {small}." if small else "",
            figures=[scatter] if scatter else [],
        ),
        Section(
            name="details",
            title="Run details",
            tables=[t for t in (runs_table(found), data_table(done), notes_table(done)) if t.rows],
            recipes=recipes_in_full(done),
        ),
        Section(
            name="failures",
            title="Failed jobs",
            tables=[failures_table(failed)] if failed else [],
            note="" if failed else "None.",
        ),
    ]  # fmt: skip
    return Report(
        store=store.path.name,
        title=headline_title(compared, done),
        facts=_facts(done, failed, where, choices),
        sections=sections,
        whole=(first, every, *shifts, *(t for s in searches for t in (*s.tables, *s.more))),
    )


def _largest(found: Found) -> list[Panel]:
    """The panels with the most results, in the order of their names."""
    most = sorted(found, key=lambda p: -sum(len(each) for each in found[p].values()))[:_PANELS]
    return [panel for panel in found if panel in most]


def _figures(
    name: str,
    title: str,
    figures: Sequence[Figure],
    found: Found,
    *,
    tables: Sequence[Table] = (),
    more: int = 0,
) -> Section:
    """A section of figures, numbered for their files; it says how many others there would be."""
    left = max(0, len(found) - _PANELS)
    parts = [f"{left:,} of {len(found):,} models and data"] if left else []
    parts += [f"{more:,} more figures"] if more > 0 else []
    words = f"Left out here: {' and '.join(parts)}; --where narrows the report to them."
    note = words if figures and parts else ""
    return Section(name=name, title=title, note=note, figures=_numbered(figures), tables=tables)


def _numbered(figures: Sequence[Figure]) -> Sequence[Figure]:
    """Each with a name of its own."""
    if len(figures) < 2:
        return figures
    return [replace(f, name=f"{f.name}-{i}") for i, f in enumerate(figures, 1)]


def _distinct(tables: Sequence[Table]) -> list[Table]:
    """Each with a name of its own."""
    if len(tables) < 2:
        return list(tables)
    return [replace(table, name=f"{table.name}-{i}") for i, table in enumerate(tables, 1)]


def _searches(choices: Sequence[Choices], done: Sequence[Result]) -> list[Section]:
    """What choice files say; nothing without any."""
    stored = {(result.job.model, result.job.recipe) for result in done}
    regret, by_shift = regret_table(choices, done), by_shift_table(choices)
    section = Section(
        name="choice",
        title="Choice of options",
        tables=[choices_table(choices, stored), *([regret] if regret else [])],
        more=[by_shift] if by_shift.rows else [],
    )
    return [section] if choices else []


def _facts(
    done: Sequence[Result],
    failed: Sequence[Result],
    where: Sequence[Condition],
    choices: Sequence[Choices],
) -> list[str]:
    """How many results, of what, when, and how long they took."""
    days = sorted({result.created[:10] for result in done})
    hours = sum(result.record.seconds or 0 for result in done) / 3600
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    took = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
    kinds = {what: {getattr(result.job, what) for result in done}
             for what in ("model", "recipe", "seed")}  # fmt: skip
    return [
        counted(len(done), "result")
        + (f", {counted(len(failed), 'failed job')}" if failed else ""),
        ", ".join(counted(len(found), what) for what, found in kinds.items()),
        f"run {span}, {took}",
        *([f"only {', '.join(_conditions(where))}"] if where else []),
        *([f"options chosen in {', '.join(map(file_name, choices))}"] if choices else []),
    ]


def _conditions(where: Sequence[Condition]) -> list[str]:
    return [f"{each.column}={','.join(each.values)}" for each in where]


def _why_nothing(store: Store, where: Sequence[Condition], failed: Sequence[Result]) -> str:
    """Why there is nothing to report, and what to do about it."""
    asked = f" with {' and '.join(_conditions(where))}" if where else ""
    if not failed:
        return f"{store.path} has no results{asked}; acclimate bench fills it"
    return (
        f"{store.path} has no results{asked} but {counted(len(failed), 'failed job')}, the first "
        f"because: {failed[0].reason}; mend that and run the same sweep again"
    )
