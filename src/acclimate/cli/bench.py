"""``acclimate bench``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from acclimate.cli.output import dimension_word
from acclimate.cli.sweep_options import (
    SCORE,
    add_choice_option,
    add_plan_options,
    add_sweep_options,
)
from acclimate.table import Table
from acclimate.text import Score

if TYPE_CHECKING:
    from acclimate.bench import Job, Store
    from acclimate.bench import Table as ResultTable
    from acclimate.bench.sweep import Outcome

__all__ = ["add_options", "run"]


def add_options(parser: Any) -> None:
    """The options of the command, with the names that a plan's file has."""
    add = parser.add_argument
    add("--plan", metavar="FILE", help="a YAML file with these names; options here win over it")
    add_plan_options(parser)
    chosen = "options for each model and recipe, as acclimate tune --out wrote them"
    add_choice_option(parser, chosen)
    order = (
        "in which order the images come: stationary (default), online, correlated[:0.1], single; "
    )
    groups = "through a group of shifts (cifar/test:5): continual, gradual, mixed"
    add("--settings", "--setting", nargs="+", metavar="NAME", help=order + groups)
    lost = "also measure the error on clean images afterwards"
    add("--forgetting", action="store_true", default=None, help=lost)
    add("--score", choices=get_args(Score), default="epochs", help=SCORE)
    add_sweep_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run what is missing of a plan, and show the mean errors."""
    from acclimate.cli.bench_plan import jobs_and_marks, plan_of
    from acclimate.cli.sweep import INTERRUPTED, OK, SOME_FAILED, dry_run, sweep_plan

    plan = plan_of(args)
    jobs, marks = jobs_and_marks(plan, args)
    if args.dry_run:
        return dry_run(jobs, args)
    store, outcome = sweep_plan(plan, jobs, args)
    if outcome is None:
        return INTERRUPTED
    shown = _errors(jobs, store)
    if args.json:
        print(json.dumps({**_plain(outcome, shown, args), "marks": marks}))
    else:
        print(_text(outcome, shown, marks, args))
    return SOME_FAILED if outcome.failed else OK


def _errors(jobs: Sequence[Job], store: Store) -> ResultTable | None:
    """Mean errors of these jobs; the store may have those of others too."""
    from acclimate.bench import pivot
    from acclimate.bench.table import Frame, needed

    columns = needed("error")
    frame = store.select(["key", *columns])
    keys = {job.key for job in jobs}
    rows = [row[1:] for row in frame.rows if row[0] in keys]
    return pivot(Frame(columns=columns, rows=rows)) if rows else None


def _plain(outcome: Outcome, shown: ResultTable | None, args: argparse.Namespace) -> dict[str, Any]:
    from acclimate.cli.sweep import plain_failures

    return {
        "store": args.store,
        "done": outcome.done,
        "skipped": outcome.skipped,
        "failed": plain_failures(outcome),
        "remarks": list(outcome.remarks),
        "table": None if shown is None else shown.to_dict(),
    }


def _text(
    outcome: Outcome, shown: ResultTable | None, marks: Sequence[str], args: argparse.Namespace
) -> str:
    from acclimate.cli.sweep import failures

    lines = []
    if shown is not None:
        rows = []
        for key in shown.row_keys:
            cell = shown.cell(key)
            images = "-" if cell.images is None else f"{cell.images:,}"
            words = map(dimension_word, shown.rows, key)
            rows.append([*words, cell.text(shown.digits), str(cell.seeds), images])
        header = [*shown.rows, "error %", "seeds", "images"]
        lines = [f"mean {shown.title}", Table(rows, header=header).text(), ""]
    some = "some options" if len(args.choice) > 1 else "options"
    lines += [f"{some} of {', '.join(args.choice)}, {mark}" for mark in marks]
    return "\n".join([*lines, *failures(outcome, args)])
