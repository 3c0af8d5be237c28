"""The report as one HTML page that asks for nothing else, from disk or anywhere."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from acclimate._version import __version__
from acclimate.report.build import Report, Section
from acclimate.report.figure import ReportFigure
from acclimate.report.practices import Practice
from acclimate.report.svg import STYLE
from acclimate.table import Table

__all__ = ["report_page"]

_DATA_ROWS = 150
_MARKS = {"passed": "✓", "not passed": "✗", "cannot tell": "?"}


def report_page(report: Report) -> str:
    """The page, with its style and script put in.

    >>> page = report_page(Report(store="sweep.db", facts=["2 results"], sections=[]))
    >>> page[:15], "<h1>sweep.db</h1>" in page, "page.js*/" in page
    ('<!doctype html>', True, False)
    """
    folder = files("acclimate.report") / "report_assets"
    page = (folder / "page.html").read_text(encoding="utf-8")
    for name in ("page.css", "page.js"):
        page = page.replace(f"/*{name}*/", (folder / name).read_text(encoding="utf-8").strip())
    shown = [section for section in report.sections if not _empty(section)]
    links = "".join(f'<li><a href="#{s.name}">{escape(s.title)}</a></li>' for s in shown)
    absent = [section.title for section in report.sections if _empty(section)]
    nothing = f"Nothing in this store for: {'; '.join(absent)}." if absent else ""
    page = page.replace("/*figures*/", STYLE)
    # The content last: what it says is not to be searched for marks.
    for mark, content in {
        "title": escape(report.store),
        "facts": "".join(f"<li>{escape(fact)}</li>" for fact in report.facts),
        "links": links,
        "absent": escape(nothing),
        "version": escape(__version__),
        "sections": "\n".join(map(_section, shown)),
    }.items():
        page = page.replace(f"<!--{mark}-->", content)
    return page


def _empty(section: Section) -> bool:
    content = (section.tables, section.figures, section.practices, section.recipes)
    return not any(content) and section.about != "None."


def _section(section: Section) -> str:
    about = f"<p>{escape(section.about)}</p>" if section.about else ""
    checks = "".join(map(_practice, section.practices))
    drawn = "\n".join(map(_figure, section.figures))
    parts = [
        f"<h2>{escape(section.title)}</h2>",
        about,
        f'<ul class="checks">{checks}</ul>' if checks else "",
        f'<div class="figures">{drawn}</div>' if drawn else "",
        *(_sheet(table) for table in section.tables),
        *(_folded(table.title, _sheet(table)) for table in section.more),
        _recipes(section),
    ]
    return f'<section id="{section.name}">{"".join(parts)}</section>'


def _practice(practice: Practice) -> str:
    state = practice.state.replace(" ", "-")
    return (
        f'<li class="{state}"><span class="mark" aria-hidden="true">{_MARKS[practice.state]}</span>'
        f"<div><b>{escape(practice.name)}</b>: {practice.state}.<br>{escape(practice.evidence)}"
        "</div></li>"
    )


def _sheet(table: Table) -> str:
    """A table with a filter and heads to sort by."""
    label, count = escape(table.title), len(table.rows)
    search = (
        f'<p class="filter"><label>Filter <input type="search" aria-label="Filter: {label}" '
        f'placeholder="words that a row must have"></label> '
        f'<output aria-live="polite">{count:,} of {count:,} rows</output></p>'
    )
    box = _box(table, sortable=True)
    return f'<div class="sheet" id="{escape(table.name)}"><h3>{label}</h3>{search}{box}</div>'


def _box(table: Table, *, sortable: bool = False) -> str:
    # What can be scrolled must be reachable by key, and then needs a name.
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in table.notes)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f"{table.html(sortable=sortable)}</div>{notes}"
    )


def _figure(figure: ReportFigure) -> str:
    # The page has the style of figures once; each would bring it again.
    table = figure.table.first(_DATA_ROWS, rest="acclimate results STORE --export has all")
    drawing = figure.svg.replace(f"<style>{STYLE}</style>", "", 1)
    return (
        f"<figure>{drawing}<figcaption><details><summary>Data"
        f'<span class="unseen"> of {escape(figure.title)}</span></summary>'
        f"{_box(table)}</details></figcaption></figure>"
    )


def _recipes(section: Section) -> str:
    if not section.recipes:
        return ""
    each = "".join(
        f"<h4>{escape(title)}</h4><pre tabindex=0>{escape(text)}</pre>"
        for title, text in section.recipes
    )
    return _folded("Recipes in full", each)


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
