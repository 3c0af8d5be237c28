"""What commands that run many jobs into a store have in common."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from acclimate.bench import Job, Plan, Store
from acclimate.bench.available import DataAtHand
from acclimate.bench.engines import Engine, InlineEngine, ProcessEngine, WorkerSettings
from acclimate.bench.engines.processes import gpus
from acclimate.bench.job import STATIONARY
from acclimate.bench.sweep import Outcome, run_jobs
from acclimate.cli.processes import refuse_launched
from acclimate.errors import AcclimateError
from acclimate.table import Table
from acclimate.text import counted, option_words

__all__ = [
    "INTERRUPTED",
    "OK",
    "SOME_FAILED",
    "cluster_engine",
    "dry_run",
    "engine_of",
    "failures",
    "plain_failures",
    "refuse_cluster_options",
    "sweep",
    "sweep_plan",
]

_RAY, _SLURM = (
    ("address", "cpus_per_job", "gpus_per_job"),
    ("slurm", "cpus_per_job", "gpus_per_job"),
)


def cluster_engine(settings: WorkerSettings, args: argparse.Namespace) -> Engine:
    """Ray's or SLURM's."""
    _refuse(args, _RAY if args.engine == "ray" else _SLURM)
    cpus = 1.0 if args.cpus_per_job is None else args.cpus_per_job
    # Other machines have other working folders.
    roots = {name: str(Path(r).expanduser().absolute()) for name, r in settings.roots.items()}
    settings = WorkerSettings(**{**vars(settings), "roots": roots})
    if args.engine == "ray":
        from acclimate.bench.engines.ray_engine import RayEngine

        return RayEngine(
            settings,
            address=args.address,
            workers=args.workers,
            cpus_per_job=cpus,
            gpus_per_job=args.gpus_per_job,
        )
    from acclimate.bench.engines.slurm import SlurmEngine

    gpus = 0.0 if args.gpus_per_job is None else args.gpus_per_job
    for option, value, least in (("--cpus-per-job", cpus, 1), ("--gpus-per-job", gpus, 0)):
        if value < least or not float(value).is_integer():
            raise AcclimateError(
                f"--engine slurm: expected a whole number {option} >= {least}, got {value:g}"
            )
    parameters = {"cpus_per_task": int(cpus), "gpus_per_node": int(gpus)}
    named = dict(map(_pair, args.slurm))
    # Asked for by name: submitit would take processes of this machine where it finds no SLURM.
    cluster = named.pop("cluster", "slurm")
    return SlurmEngine(
        settings,
        folder=Path(f"{args.store}-tasks").absolute(),  # beside the store, where all nodes see it
        workers=1 if args.workers is None else args.workers,
        parameters={**parameters, **named},
        cluster=cluster,
    )


def refuse_cluster_options(args: argparse.Namespace) -> None:
    """Options of clusters mean nothing to the other engines."""
    _refuse(args, ())


def _refuse(args: argparse.Namespace, allowed: tuple[str, ...]) -> None:
    for name in ("address", "cpus_per_job", "gpus_per_job", "slurm"):
        if getattr(args, name) not in (None, []) and name not in allowed:
            option = "--" + name.replace("_", "-")
            engine = "slurm" if name == "slurm" else "ray"
            got = "no --engine" if args.engine is None else f"--engine {args.engine}"
            raise AcclimateError(f"{option} is for --engine {engine}, got {got}")


def _pair(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not (name and equals and value):
        raise AcclimateError(f"expected --slurm NAME=VALUE, such as timeout_min=240, got {word!r}")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


OK, SOME_FAILED, INTERRUPTED = 0, 1, 130
_FIRST = 5
_FAILED = 10


def sweep_plan(
    plan: Plan, jobs: Sequence[Job], args: argparse.Namespace
) -> tuple[Store, Outcome | None]:
    """Run what is missing of a plan's jobs; a store is made once nothing is left to refuse."""
    done = _done(jobs, args)
    for dataset in dict.fromkeys(job.dataset for job in jobs if job.key not in done):
        hand = DataAtHand(roots={dataset: str(plan.root(dataset))}, incomplete=args.incomplete)
        problem = hand.nothing_of(dataset, split=plan.split_of(dataset))
        if problem is not None:
            raise AcclimateError(f"{problem}; check --root {dataset}=DIR")
    engine = engine_of(plan.roots, args)
    store = Store(args.store)
    return store, sweep(jobs, store, engine, args)


def sweep(
    jobs: Sequence[Job], store: Store, engine: Engine, args: argparse.Namespace
) -> Outcome | None:
    """Run what is missing; None where a key stopped it."""
    try:
        with redirect_stdout(sys.stderr) if args.json else nullcontext():
            return run_jobs(jobs, store, engine, progress=not args.quiet)
    except KeyboardInterrupt:
        kept = counted(len(store.has(job.key for job in jobs)), "result")
        print(
            f"acclimate: interrupted; {kept} in {args.store}, and the same command goes on from "
            "there",
            file=sys.stderr,
        )
        return None


def engine_of(roots: Mapping[str, str], args: argparse.Namespace) -> Engine:
    """Where the options say that jobs run; asked before a store is made, which it may refuse."""
    refuse_launched("--engine processes --workers N")
    if args.engine == "inline" and (args.workers or 1) > 1:
        raise AcclimateError(
            f"expected one worker for --engine inline, got --workers {args.workers}; "
            "--engine processes has several"
        )
    settings = WorkerSettings(
        roots=dict(roots),
        device=args.device,
        incomplete=args.incomplete,
        score=getattr(args, "score", "epochs"),
        speed=args.speed,
        progress=not args.quiet,
    )
    if args.engine in ("ray", "slurm"):
        return cluster_engine(settings, args)
    refuse_cluster_options(args)
    several = args.workers is not None or (args.device in (None, "cuda") and gpus() > 1)
    if args.engine == "processes" or (args.engine is None and several and args.workers != 1):
        return ProcessEngine(settings, workers=args.workers)
    return InlineEngine(settings)


def dry_run(jobs: Sequence[Job], args: argparse.Namespace) -> int:
    """Say how many jobs there are, how many are done, and what the next ones are."""
    done = _done(jobs, args)
    todo = [job for job in jobs if job.key not in done]
    if args.json:
        first = [job.to_dict() for job in todo[:_FIRST]]
        print(json.dumps({"jobs": len(jobs), "done": len(done), "first": first}))
        return OK
    print(f"{len(jobs):,} jobs, {len(done):,} of them done, {len(todo):,} to run")
    if todo:
        words = list(map(_job_words, todo[:_FIRST]))
        names = [n for n in words[0] if n != "setting" or any(job.setting for job in jobs)]
        print(Table([[each[name] for name in names] for each in words], header=names).text())
    if len(todo) > _FIRST:
        print(f"… and {len(todo) - _FIRST:,} more")
    return OK


def _done(jobs: Sequence[Job], args: argparse.Namespace) -> set[str]:
    """The keys of jobs that are done; none is where there is no store yet."""
    if not Path(args.store).expanduser().exists():
        return set()
    return Store(args.store, create=False).has(job.key for job in jobs)


def _job_words(job: Job) -> dict[str, str]:
    return {
        "model": job.model,
        "dataset": job.dataset,
        "shift": job.shift or "clean",
        "setting": job.setting or STATIONARY,
        "recipe": job.recipe,
        "options": option_words(job.options, between=" ", none="-"),
        "seed": str(job.seed),
    }


def failures(outcome: Outcome, args: argparse.Namespace) -> list[str]:
    """How many jobs were run, and why the first of those that failed did."""
    counts = f"{outcome.done:,} run, {outcome.skipped:,} done before"
    lines = [f"{counts}, {len(outcome.failed):,} failed; acclimate results {args.store}"]
    if outcome.smaller:
        lines.append(
            f"  memory ran out for {outcome.smaller:,}, which took smaller batches than their "
            "options say; the notes of their results say which"
        )
    lines += [f"  note: {remark}" for remark in outcome.remarks]
    for result in outcome.failed[:_FAILED]:
        job = result.job
        what = " ".join([job.model, job.dataset, job.shift or "clean", job.recipe])
        lines.append(f"  failed: {what}: {result.reason}")
    if len(outcome.failed) > _FAILED:
        lines.append(f"  … and {len(outcome.failed) - _FAILED:,} more")
    return lines


def plain_failures(outcome: Outcome) -> list[dict[str, Any]]:
    """Failed jobs and why, for JSON."""
    return [
        {"key": result.key, "job": result.job.to_dict(), "message": result.message}
        for result in outcome.failed
    ]
