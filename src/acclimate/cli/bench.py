"""``acclimate bench``."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

from acclimate.cli.tables import table
from acclimate.errors import AcclimateError

if TYPE_CHECKING:
    from acclimate.experiments import Plan, Store, Table
    from acclimate.experiments.engines import Engine
    from acclimate.experiments.sweep import Outcome

__all__ = ["add_options", "run"]

OK, SOME_FAILED, INTERRUPTED = 0, 1, 130
_FIRST = 5
_FAILED = 10


def add_options(parser: Any) -> None:
    """The options of the command, with the names that a plan's file has."""
    add = parser.add_argument
    add("--plan", metavar="FILE", help="a YAML file with these names; options here win over it")
    add("--models", "--model", nargs="+", metavar="SPEC", help="as in acclimate evaluate --model")
    add("--datasets", "--dataset", nargs="+", metavar="NAME", help="see acclimate list datasets")
    where = "where the data sets lie: DIR, or NAME=DIR; repeatable"
    add("--root", metavar="[NAME=]DIR", action="append", default=[], help=where)
    what = "fog:3, dev, test, all; cifar/fog, imagenet/test are made on the way; clean"
    add("--shifts", "--shift", nargs="+", metavar="SHIFT", help=what)
    add("--recipes", "--recipe", nargs="+", metavar="NAME", help="none is the model as it is")
    grid = "change recipes; several values make a grid; repeatable; ent:epochs=2 is for one alone"
    add("--set", "--grid", metavar="OPTION=VALUE[,...]", action="append", default=[], help=grid)
    add("--seeds", "--seed", nargs="+", type=int, metavar="N", help="of the adaptation")
    first = "only the first so many of each shift"
    add("--images-per-shift", "--images", type=int, metavar="N", dest="images", help=first)
    add("--weights", metavar="[MODEL=]FILE", action="append", default=[], help="for a model")
    add("--split", metavar="NAME", help="of the data sets (default: the first of each)")
    lost = "also measure the error on clean images afterwards"
    add("--forgetting", action="store_true", default=None, help=lost)
    add("--incomplete", action="store_true", help="take data sets with gaps")
    add("--store", metavar="FILE", required=True, help="where results are kept; made where missing")
    how = "in this process, or in several (default: several where there is work for them)"
    add("--engine", choices=["inline", "processes"], help=how)
    many = "processes; default: one for each GPU, or this process where there is none"
    add("--workers", type=int, metavar="N", help=many)
    add("--device", help="cpu, cuda, cuda:1, ... (default: all GPUs, or the CPU)")
    add("--dry-run", action="store_true", help="say what would be run, and run nothing")
    add("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    add("--quiet", action="store_true", help="no progress bars")


def run(args: argparse.Namespace) -> int:
    """Run what is missing of a plan, and show the mean errors."""
    from acclimate.cli._bench_plan import plan_of

    plan = plan_of(args)
    if args.dry_run:
        return _dry_run(plan, args)
    for dataset in plan.datasets:
        plan.root(dataset)  # refuses one that has none
    from acclimate.experiments import Store
    from acclimate.experiments.sweep import run_plan

    store = Store(args.store)
    try:
        with redirect_stdout(sys.stderr) if args.json else nullcontext():
            outcome = run_plan(plan, store, _engine(plan, args), progress=not args.quiet)
    except KeyboardInterrupt:
        kept = f"{len(store.has(job.key for job in plan.jobs())):,} results are in {args.store}"
        print(
            f"acclimate: interrupted; {kept}, and the same command goes on from there",
            file=sys.stderr,
        )
        return INTERRUPTED
    shown = _errors(plan, store)
    print(json.dumps(_plain(outcome, shown, args)) if args.json else _text(outcome, shown, args))
    return SOME_FAILED if outcome.failed else OK


def _engine(plan: Plan, args: argparse.Namespace) -> Engine:
    from acclimate.experiments.engines import InlineEngine, ProcessEngine, WorkerSettings
    from acclimate.experiments.engines.processes import gpus

    if args.engine == "inline" and (args.workers or 1) > 1:
        raise AcclimateError(
            f"expected one worker for --engine inline, got --workers {args.workers}; "
            "--engine processes has several"
        )
    settings = WorkerSettings(
        roots=dict(plan.roots),
        device=args.device,
        incomplete=args.incomplete,
        progress=not args.quiet,
    )
    several = args.workers is not None or (args.device in (None, "cuda") and gpus() > 1)
    if args.engine == "processes" or (args.engine is None and several and args.workers != 1):
        return ProcessEngine(settings, workers=args.workers)
    return InlineEngine(settings)


def _dry_run(plan: Plan, args: argparse.Namespace) -> int:
    from pathlib import Path

    from acclimate.experiments import Store

    jobs = plan.jobs()
    there = Path(args.store).expanduser().exists()
    done = Store(args.store, create=False).has(job.key for job in jobs) if there else set()
    todo = [job for job in jobs if job.key not in done]
    if args.json:
        first = [job.to_dict() for job in todo[:_FIRST]]
        print(json.dumps({"jobs": len(jobs), "done": len(done), "first": first}))
        return OK
    print(f"{len(jobs):,} jobs, {len(done):,} of them done, {len(todo):,} to run")
    if todo:
        rows = [
            [
                job.model,
                job.dataset,
                job.shift or "clean",
                job.recipe,
                " ".join(f"{key}={value}" for key, value in job.options) or "-",
                str(job.seed),
            ]
            for job in todo[:_FIRST]
        ]
        print(table(rows, header=["model", "dataset", "shift", "recipe", "options", "seed"]))
    if len(todo) > _FIRST:
        print(f"… and {len(todo) - _FIRST:,} more")
    return OK


def _errors(plan: Plan, store: Store) -> Table | None:
    """Mean errors of this plan's jobs; the store may have those of others too."""
    from acclimate.experiments import pivot
    from acclimate.experiments.query import Frame, needed

    columns = needed("error")
    frame = store.select(["key", *columns])
    keys = {job.key for job in plan.jobs()}
    rows = [row[1:] for row in frame.rows if row[0] in keys]
    return pivot(Frame(columns=columns, rows=rows)) if rows else None


def _plain(outcome: Outcome, shown: Table | None, args: argparse.Namespace) -> dict[str, Any]:
    failed = [
        {"key": result.key, "job": result.job.to_dict(), "message": result.message}
        for result in outcome.failed
    ]
    return {
        "store": args.store,
        "done": outcome.done,
        "skipped": outcome.skipped,
        "failed": failed,
        "table": None if shown is None else shown.to_dict(),
    }


def _text(outcome: Outcome, shown: Table | None, args: argparse.Namespace) -> str:
    lines = []
    if shown is not None:
        rows = []
        for key in shown.row_keys:
            cell = shown.cell(key)
            images = "-" if cell.images is None else f"{cell.images:,}"
            words = ["-" if word is None else str(word) for word in key]
            rows.append([*words, cell.text(shown.digits), str(cell.seeds), images])
        header = [*shown.rows, "error %", "seeds", "images"]
        lines = [f"mean {shown.title}", table(rows, header=header), ""]
    counts = f"{outcome.done:,} run, {outcome.skipped:,} done before"
    lines.append(f"{counts}, {len(outcome.failed):,} failed; acclimate results {args.store}")
    for result in outcome.failed[:_FAILED]:
        job = result.job
        what = " ".join([job.model, job.dataset, job.shift or "clean", job.recipe])
        lines.append(f"  failed: {what}: {result.message.splitlines()[0]}")
    if len(outcome.failed) > _FAILED:
        lines.append(f"  … and {len(outcome.failed) - _FAILED:,} more")
    return "\n".join(lines)
