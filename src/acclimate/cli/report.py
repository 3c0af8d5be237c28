"""``acclimate report``: a store of results as a page, as figures and as tables."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acclimate.cli.options import add_choice, add_command, add_json, add_where
from acclimate.cli.output import say_written, write_figure, write_file
from acclimate.errors import AcclimateError
from acclimate.text import user_path

if TYPE_CHECKING:
    from acclimate.report.page import Report

__all__ = ["add_parser"]

_DESCRIPTION = """\
Turn a store of results into one page that opens from disk: tables, plots, run
details, best practices. Plots and tables can be written for papers too.

Plots need pip install 'acclimate[report]'; without it there are only tables.

examples:
  acclimate report sweep.db
  acclimate report sweep.db --out report.html --where dataset=cifar10 \\
      --figures fig/ --tables tab/
"""


def add_parser(commands: Any) -> None:
    """``acclimate report`` and its options."""
    groups = add_command(
        commands,
        "report",
        run,
        summary="turn a store of results into a page, plots and tables",
        description=_DESCRIPTION,
        usage="STORE [options]",
        data="results",
    )
    groups.data.add_argument("store", metavar="STORE", help="the file that acclimate bench wrote")
    add_where(groups)
    add_choice(groups.data, "options that acclimate tune --out wrote, for the best practices")
    add = groups.output.add_argument
    page = "the page, .html, or a folder for it (default: %(default)s)"
    add("--out", metavar="FILE", default="report.html", help=page)
    add("--figures", metavar="DIR", help="also write each plot there, as SVG and PNG")
    add("--tables", metavar="DIR", help="also write the tables there, as LaTeX and Markdown")
    add_json(groups)


def run(args: argparse.Namespace) -> int:
    """Write the page and what else is asked for, and say what was written."""
    from acclimate.bench import Store, conditions
    from acclimate.bench.choices import read_choices
    from acclimate.report.charts import why_no_charts
    from acclimate.report.page import build_report, report_page

    began = time.perf_counter()
    if args.figures is not None and (missing := why_no_charts()) is not None:
        raise AcclimateError(f"{missing}; without --figures, the page has the data in tables")
    out = user_path(args.out)
    store = Store(args.store, create=False)
    if out.resolve() == store.path.resolve():
        raise AcclimateError(f"expected --out to be a page, got the store {out} itself")
    out = _page(args.out)
    choices = [read_choices(path) for path in args.choice]
    report = build_report(store, conditions(args.where), choices=choices)
    written = [write_file(out, report_page(report).encode())]
    if args.figures is not None:
        folder = user_path(args.figures)
        for figure in report.figures:
            written += write_figure(folder, figure.name, figure.file())
    if args.tables is not None:
        written += _tables(report, user_path(args.tables))
    if args.json:
        facts = {"out": str(out), "bytes": out.stat().st_size, "facts": list(report.facts)}
        named = {"written": [str(path) for path in written]}
        print(json.dumps({**facts, **named, "seconds": round(time.perf_counter() - began, 2)}))
        return 0
    say_written(written)
    return 0


def _page(given: str) -> Path:
    """A folder gets a page in it, and a name the ending without which browsers show text."""
    out = user_path(given)
    if out.is_dir() or given.endswith("/"):
        return out / "report.html"
    return out if out.suffix in (".html", ".htm") else out.with_name(f"{out.name}.html")


def _tables(report: Report, folder: Path) -> list[Path]:
    return [
        write_file(folder / f"{table.name}{ending}", f"{written}\n".encode())
        for table in report.whole
        for ending, written in ((".tex", table.latex()), (".md", table.markdown()))
    ]
