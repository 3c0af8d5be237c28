"""``acclimate bench``."""

from __future__ import annotations

import argparse
import json
from typing import Any, get_args

from acclimate.cli.options import (
    SCORE,
    add_choice,
    add_command,
    add_engine,
    add_json,
    add_plan,
    add_quiet,
)
from acclimate.cli.results import table_text
from acclimate.text import Score

__all__ = ["add_parser"]

_DESCRIPTION = """\
Run models × data sets × shifts × recipes × options × seeds, and keep the
results in a store.

What is in the store already is not run again: the same command resumes where
it was stopped. Exit status: 0; 1 when jobs failed (the same command tries them
again); 2 for a mistake in the call.

examples:
  acclimate bench --models acclimate:wrn-40-2-augmix-cifar10 \\
      --datasets cifar10 --root data/ --shifts cifar/dev \\
      --recipes none bn ent rpl --seeds 0 1 2 --lr 1e-2,1e-3 --store sweep.db
  acclimate bench --plan plan.yaml --store sweep.db --dry-run
  acclimate bench --plan plan.yaml --store sweep.db --workers 4
"""


def add_parser(commands: Any) -> None:
    """``acclimate bench`` and its options, with the names that a plan's file has."""
    groups = add_command(
        commands,
        "bench",
        run,
        summary="compare models, shifts and recipes; results go to a store",
        description=_DESCRIPTION,
        usage="--store FILE [options]",
        resumes_from="store",
    )
    plan = "a YAML file with the names of these options; options given here win over it"
    groups.data.add_argument("--plan", metavar="FILE", help=plan)
    add_plan(groups, metavar="N[,...]", help="short for --set epochs=N[,...]")
    add = groups.method.add_argument
    add_choice(groups.method, "options for each model and recipe, from acclimate tune --out")
    order = (
        "order of the images: stationary (default), online, correlated[:0.1], single; "
        "through a group of shifts (cifar/test:5): continual, gradual, mixed"
    )
    add("--settings", "--setting", nargs="+", metavar="NAME", help=order)
    lost = "also measure the error on clean images afterwards"
    add("--forgetting", action="store_true", default=None, help=lost)
    add = groups.output.add_argument
    add("--store", metavar="FILE", required=True, help="file of results, made where missing")
    add_json(groups)
    add_quiet(groups)
    add = groups.running.add_argument
    add("--dry-run", action="store_true", help="print what would be run, and run nothing")
    add("--score", choices=get_args(Score), default="epochs", help=SCORE)
    add_engine(groups)


def run(args: argparse.Namespace) -> int:
    """Run what is missing of a plan, and print the mean errors."""
    from acclimate.bench import pivot
    from acclimate.bench.choices import chosen_jobs, read_choices
    from acclimate.bench.table import Frame, needed
    from acclimate.cli import sweep

    plan = sweep.plan_of(args)
    jobs, marks = plan.jobs(), []
    if args.choice:
        choices = read_choices(*args.choice)
        jobs, marks = chosen_jobs(jobs, choices), choices.marks
    if args.dry_run:
        return sweep.dry_run(jobs, args)
    store, outcome = sweep.sweep_plan(plan, jobs, args)
    if outcome is None:
        return sweep.INTERRUPTED
    # The mean errors of these jobs: the store may have those of others too.
    columns, keys = needed("error"), {job.key for job in jobs}
    rows = [row[1:] for row in store.select(["key", *columns]).rows if row[0] in keys]
    shown = pivot(Frame(columns=columns, rows=rows)) if rows else None
    if args.json:
        record = {
            "store": args.store,
            "done": outcome.done,
            "skipped": outcome.skipped,
            "failed": sweep.plain_failures(outcome),
            "remarks": list(outcome.warnings),
            "table": None if shown is None else shown.to_dict(),
            "marks": marks,
        }
        print(json.dumps(record))
    else:
        some = "some options" if len(args.choice) > 1 else "options"
        lines = [] if shown is None else [table_text(shown), ""]
        lines += [f"{some} of {', '.join(args.choice)}, {mark}" for mark in marks]
        print("\n".join([*lines, *sweep.failures(outcome, args)]))
    return sweep.SOME_FAILED if outcome.failed else sweep.OK
