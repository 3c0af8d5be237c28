"""From a store to one HTML page that needs nothing else: sections with their tables and charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from acclimate._version import __version__
from acclimate.bench import Condition, Store
from acclimate.bench.choices import Choices
from acclimate.bench.record import Result
from acclimate.errors import AcclimateError
from acclimate.report.calibration import reliability_figure
from acclimate.report.charts import DARK, LIGHT, Figure, browser_script, why_no_charts
from acclimate.report.choices import by_shift_table, choices_table, file_name, regret_table
from acclimate.report.details import (
    data_table,
    failures_table,
    notes_table,
    recipes_in_full,
    runs_table,
)
from acclimate.report.headline import settings_tables
from acclimate.report.over_time import balance_figure, error_figure
from acclimate.report.practices import Practice, practices
from acclimate.report.published import PublishedPoint, published_figure, published_points
from acclimate.report.rates import rate_figure, rate_groups
from acclimate.report.settings import Found, Panel, choose, panels
from acclimate.report.shifts import dumbbell_figure, shift_tables
from acclimate.table import Table
from acclimate.text import counted

__all__ = ["Report", "build_report", "report_page"]

_PANELS = 12
_HEADLINE, _BY_SHIFT, _DATA = 400, 150, 150
_REST = "narrow it with --where, or write all with --tables DIR"


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the report under a heading; ``more`` are tables that are folded away."""

    name: str
    title: str
    about: str = ""
    tables: Sequence[Table] = ()
    more: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    practices: Sequence[Practice] = ()
    recipes: Sequence[tuple[str, str]] = ()

    @property
    def empty(self) -> bool:
        """Whether it has nothing to show."""
        content = (self.tables, self.figures, self.practices, self.recipes)
        return not any(content) and self.about != "None."


@dataclass(frozen=True, kw_only=True)
class Report:
    """All of it. ``whole`` has the tables of errors with all their rows, for files."""

    store: str
    facts: Sequence[str]
    sections: Sequence[Section]
    whole: Sequence[Table] = field(repr=False, default_factory=tuple)

    @property
    def figures(self) -> list[Figure]:
        """The figures of all sections, each with a name of its own."""
        return [figure for section in self.sections for figure in section.figures]


def report_page(report: Report) -> str:
    """The page, with its style, its scripts and its data in it; without vl-convert, tables alone.

    >>> page = report_page(Report(store="sweep.db", facts=["2 results"], sections=[]))
    >>> page[:15], "<h1>sweep.db</h1>" in page
    ('<!doctype html>', True)
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    missing = why_no_charts()
    environment = Environment(
        loader=PackageLoader("acclimate.report", "report_assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment.get_template("page.html").render(
        report=report,
        shown=[section for section in report.sections if not section.empty],
        absent=[section.title for section in report.sections if section.empty],
        missing=missing,
        script="" if missing or not report.figures else browser_script(),
        themes={"light": LIGHT, "dark": DARK},
        rows_of_data=_DATA,
        version=__version__,
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
    chosen = [each for panel in found for each in choose(panel, found, choices=choices)]
    points = published_points(done, chosen) if published is None else published
    first, every = settings_tables(store, where, chosen)
    shifts = shift_tables(store, where)
    scatter = published_figure(points)
    swept = [group for panel in _shown(found) for group in rate_groups(panel, found)]
    searches = _searches(choices, done)

    def by_panel(draw: Callable[..., Figure | None]) -> list[Figure]:
        figures = (draw(panel, found, choices=choices) for panel in _shown(found))
        return [figure for figure in figures if figure is not None]

    sections = [
        Section(
            name="results",
            title="Results",
            tables=[first.first(_HEADLINE, rest=_REST)],
            more=[every.first(_HEADLINE, rest=_REST)] if len(every.rows) > len(first.rows) else [],
        ),
        Section(
            name="practices",
            title="Best practices",
            about="What the paper asks of an evaluation of test-time adaptation, and whether it "
            "shows in these results.",
            practices=practices(found, choices),
        ),
        *searches,
        Section(
            name="corruptions",
            title="Error by corruption, before and after",
            figures=by_panel(dumbbell_figure),
            tables=[table.first(_BY_SHIFT, rest=_REST) for table in shifts],
        ),
        Section(
            name="epochs",
            title="Error over the adaptation",
            figures=by_panel(error_figure),
            about="Solid: after each epoch, of a pass over all images; epoch 0 has the "
            "recipe's statistics and nothing learnt. Dotted: the online predictions of the "
            "epoch, each made before its update. All with the statistics of each batch, as bn's "
            "line is; the model returned has those of all images. Of a stream: the online "
            "predictions in each twentieth of it.",
        ),
        Section(
            name="rates",
            title="Learning rate and epochs",
            figures=[rate_figure(*group) for group in swept[:_PANELS]],
            about="The error in each cell; yellow where learning lowered it, purple where it "
            "raised it, against the recipe's statistics with nothing learnt; full colour "
            "for a quarter of that error or more. Framed: worse than the unadapted model. "
            "Runs of many epochs have all shorter ones in them.",
        ),
        Section(
            name="calibration",
            title="Calibration",
            figures=by_panel(reliability_figure),
            about="On the dashed line a model is right as often as it says. ECE: expected "
            "calibration error of the curve, from 0 to 1. Bins of fewer than one image in a "
            "thousand are left out.",
        ),
        Section(
            name="balance",
            title="Class balance over time",
            figures=by_panel(balance_figure),
            about="How frequent the most frequent prediction is. A model that collapses predicts "
            "ever fewer classes.",
        ),
        Section(
            name="published",
            title="Published and measured",
            about=_compared(points),
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
            about="" if failed else "None.",
        ),
    ]
    more = {"rates": len(swept) - _PANELS}
    return Report(
        store=store.path.name,
        facts=_facts(done, failed, where, choices),
        sections=[_named(_left_out(section, found, more.get(section.name, 0)))
                  for section in sections],
        whole=(first, every, *shifts, *(t for s in searches for t in (*s.tables, *s.more))),
    )  # fmt: skip


def _compared(points: Sequence[PublishedPoint]) -> str:
    small = sorted({point.small for point in points if point.small})
    less = f" Some are measured on less than the paper: {'; '.join(small)}." if small else ""
    return f"The numbers of the paper whose runs are in this store.{less}"


def _shown(found: Found) -> list[Panel]:
    """The panels with the most results, in the order of their names."""
    most = sorted(found, key=lambda p: -sum(len(each) for each in found[p].values()))[:_PANELS]
    return [panel for panel in found if panel in most]


def _searches(choices: Sequence[Choices], done: Sequence[Result]) -> list[Section]:
    """What choice files say; nothing without any."""
    if not choices:
        return []
    stored = {(result.job.model, result.job.recipe) for result in done}
    regret, by_shift = regret_table(choices, done), by_shift_table(choices)
    section = Section(
        name="choice",
        title="Choice of options",
        about="From the files of acclimate tune: what was searched, on which images, and what was "
        "chosen.",
        tables=[choices_table(choices, stored), *([regret] if regret else [])],
        more=[by_shift] if by_shift.rows else [],
    )
    return [section]


def _left_out(section: Section, found: Found, more: int) -> Section:
    """A section of several figures says how many others there would be."""
    left = len(found) - len(_shown(found))
    if not section.figures or section.name == "published" or (left <= 0 and more <= 0):
        return section
    parts = [f"{left:,} of {len(found):,} models and data"] if left > 0 else []
    parts += [f"{more:,} more figures"] if more > 0 else []
    words = f"Left out here: {' and '.join(parts)}; --where narrows the report to them."
    return replace(section, about=f"{section.about} {words}".strip())


def _named(section: Section) -> Section:
    """Figures of one kind are numbered, for their files."""
    if len(section.figures) < 2:
        return section
    figures = [replace(f, name=f"{f.name}-{i}") for i, f in enumerate(section.figures, 1)]
    return replace(section, figures=figures)


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
    chosen = ", ".join(f"{each.column}={','.join(each.values)}" for each in where)
    names = ", ".join(map(file_name, choices))
    return [
        counted(len(done), "result")
        + (f", {counted(len(failed), 'failed job')}" if failed else ""),
        ", ".join(
            counted(len({getattr(result.job, what) for result in done}), what)
            for what in ("model", "recipe", "seed")
        ),
        f"run {span}, {took}",
        *([f"only {chosen}"] if chosen else []),
        *([f"options chosen in {names}"] if names else []),
    ]


def _why_nothing(store: Store, where: Sequence[Condition], failed: Sequence[Result]) -> str:
    """Why there is nothing to report, and what to do about it."""
    chosen = " and ".join(f"{each.column}={','.join(each.values)}" for each in where)
    asked = f" with {chosen}" if chosen else ""
    if not failed:
        return f"{store.path} has no results{asked}; acclimate bench fills it"
    why = failed[0].reason
    jobs = counted(len(failed), "failed job")
    return (
        f"{store.path} has no results{asked} but {jobs}, the first because: {why}; mend that and "
        "run the same sweep again"
    )
