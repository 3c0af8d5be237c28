"""``acclimate theory``: the two-point model as figures, and as a page to play with."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from acclimate.cli.options import add_command, add_json, add_quiet
from acclimate.cli.output import say_written, write_figure, write_file
from acclimate.errors import AcclimateError, unknown_name
from acclimate.lock import claimed
from acclimate.text import user_path

if TYPE_CHECKING:
    from acclimate.report.theory import TheoryFigure

__all__ = ["add_parser"]

_DESCRIPTION = """\
Why self-learning works or collapses: the paper's two-point model as figures,
and as an interactive page.

DIR/theory.html opens from disk. Figures are SVG and PNG, and need
pip install 'acclimate[report]'.

examples:
  acclimate theory --out theory/
  acclimate theory --out theory/ --figures none
  acclimate theory --out theory/ --figures phase field --quick
"""


def add_parser(commands: Any) -> None:
    """``acclimate theory`` and its options."""
    groups = add_command(
        commands,
        "theory",
        run,
        summary="figures and a page on when self-learning collapses",
        description=_DESCRIPTION,
        usage="--out DIR [options]",
    )
    add = groups.output.add_argument
    add("--out", metavar="DIR", required=True, help="folder for the files; they are replaced")
    which = "phase, 2p-momentum, 2p-standard, 2p-weight, trajectories, field; all (default) or none"
    add("--figures", metavar="NAME", nargs="*", help=which)
    add_json(groups)
    add_quiet(groups)
    quick = "60 temperatures a side instead of the paper's 250"
    groups.running.add_argument("--quick", action="store_true", help=quick)


def run(args: argparse.Namespace) -> int:
    """Write the page, then the figures, and say what was written."""
    from tqdm import tqdm

    from acclimate.report.charts import why_no_charts
    from acclimate.report.theory import theory_page

    if not args.out:
        raise AcclimateError("expected --out DIR, got an empty name; '.' is the current folder")
    figures = _chosen(args.figures, quick=args.quick)
    if figures and (missing := why_no_charts()) is not None:
        raise AcclimateError(f"{missing}; --figures none writes the page alone")
    out = user_path(args.out)
    began = time.perf_counter()
    panels = sum(figure.panels for figure in figures)
    with (
        claimed(out),
        tqdm(total=panels, desc="panels", unit="", disable=args.quiet or not panels) as bar,
    ):
        written = [write_file(out / "theory.html", theory_page().encode())]
        for figure in figures:
            written += write_figure(out, figure.name, figure.draw(bar.update))
    if args.json:
        facts = {"out": str(out), "written": [path.name for path in written]}
        print(json.dumps({**facts, "seconds": round(time.perf_counter() - began, 2)}))
        return 0
    say_written(written)
    return 0


def _chosen(names: list[str] | None, *, quick: bool) -> list[TheoryFigure]:
    from acclimate.report.theory import theory_figures

    known = {figure.name: figure for figure in theory_figures(quick=quick)}
    if not names or names == ["all"]:
        return list(known.values())
    if names == ["none"]:
        return []
    for name in names:
        if name in ("all", "none"):
            raise AcclimateError(f"expected '{name}' alone or names, got {' '.join(names)}")
        if name not in known:
            raise unknown_name("figure", name, [*known, "all", "none"])
    return [known[name] for name in dict.fromkeys(names)]
