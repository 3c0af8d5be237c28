"""What bench, tune and reproduce share: a plan from options, and its jobs run into a store."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from acclimate.bench import Job, Plan, Store
from acclimate.bench.available import AvailableData
from acclimate.bench.engines import Engine, InlineEngine, ProcessEngine, WorkerSettings
from acclimate.bench.engines.processes import gpus
from acclimate.bench.job import STATIONARY
from acclimate.bench.store import is_made
from acclimate.bench.sweep import Outcome, run_jobs
from acclimate.cli.options import assignments
from acclimate.cli.processes import refuse_launched
from acclimate.errors import AcclimateError
from acclimate.table import Table
from acclimate.text import counted, option_words, user_path

__all__ = [
    "INTERRUPTED",
    "OK",
    "SOME_FAILED",
    "dry_run",
    "engine_of",
    "failures",
    "plain_failures",
    "plan_of",
    "sweep",
    "sweep_plan",
]

OK, SOME_FAILED, INTERRUPTED = 0, 1, 130
_JOBS_SHOWN = 5
_FAILED_SHOWN = 10
_IN_PLANS = (
    "models", "datasets", "shifts", "recipes", "seeds", "images", "split", "forgetting", "settings",
)  # fmt: skip
_CLUSTERS = {
    "address": ("ray",),
    "cpus_per_job": ("ray", "slurm"),
    "gpus_per_job": ("ray", "slurm"),
    "slurm": ("slurm",),
}
"""The options that only engines for clusters have."""


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan of a file, changed by the options, or of the options alone; checked."""
    given: dict[str, Any] = {
        name: getattr(args, name) for name in _IN_PLANS if getattr(args, name, None) is not None
    }
    if args.plan is not None:
        plan = _narrowed(Plan.from_yaml(args.plan), given)
    elif "models" in given and "datasets" in given:
        plan = Plan(**given)
    else:
        raise AcclimateError("expected --models and --datasets, or --plan with them")
    grid = _grid(assignments(args), plan.recipes)
    for recipe, below in plan.options.items():
        if isinstance(below, Mapping) and recipe in grid:
            grid[recipe] = {**below, **grid[recipe]}
    plan = replace(
        plan,
        options={**plan.options, **grid},
        roots={**plan.roots, **_by_name(args.root, plan.datasets, what="--root")},
        weights={**plan.weights, **_by_name(args.weights, plan.models, what="--weights")},
    )
    plan.check()
    return plan


def _narrowed(plan: Plan, given: Mapping[str, Any]) -> Plan:
    """A file's plan with the options, without its entries for what the options leave out."""
    left = replace(plan, **given)
    gone = {*plan.recipes, *plan.datasets, *plan.models}
    gone -= {*left.recipes, *left.datasets, *left.models}
    kept: dict[str, Any] = {
        field: {name: value for name, value in getattr(left, field).items() if name not in gone}
        for field in ("shifts", "options", "roots", "weights")
        if isinstance(getattr(left, field), Mapping)
    }
    return replace(left, **kept)


def _grid(words: Sequence[str], recipes: Sequence[str]) -> dict[str, Any]:
    """``optimizer.lr=1e-3,1e-4`` and ``ent:epochs=1,5`` as a grid.

    >>> _grid(["optimizer.lr=1e-3,1e-4", "ent:epochs=1"], ["ent"])
    {'optimizer.lr': ['1e-3', '1e-4'], 'ent': {'epochs': ['1']}}
    """
    grid: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        # The name of a recipe may have colons, as py:module:function does.
        recipe, colon, option = key.rpartition(":")
        values = [each.strip() for each in value.split(",")]
        if not (option.strip() and equals and all(values)):
            raise AcclimateError(
                f"expected part.option=value (optimizer.lr=1e-3, or 1e-3,1e-4 for both), got "
                f"{word!r}"
            )
        if colon and recipe not in recipes:
            raise AcclimateError(
                f"--set {word} is for the recipe {recipe!r}, which is not in the plan: expected "
                f"one of {', '.join(recipes)}"
            )
        place = grid.setdefault(recipe, {}) if colon else grid
        if option.strip() in place:
            raise AcclimateError(
                f"expected --set {key.strip()} once, got it again as {word!r}; for several values "
                f"type --set {key.strip()}=1,2"
            )
        place[option.strip()] = values
    return grid


def _by_name(words: Sequence[str], names: Sequence[str], *, what: str) -> dict[str, str]:
    """``NAME=PATH`` for one, ``PATH`` for all that have none of their own.

    >>> _by_name(["data", "mnist=digits"], ["mnist", "cifar10"], what="--root")
    {'mnist': 'digits', 'cifar10': 'data'}
    """
    found: dict[str, str] = {}
    general: str | None = None
    for word in words:
        name, equals, path = word.partition("=")
        if equals and name in names:
            found[name] = path
        elif equals and not user_path(word).exists():  # = may be part of a path
            raise AcclimateError(
                f"expected {what} NAME=PATH with one of {', '.join(names)}, got {word}"
            )
        elif general is None:
            general = word
        else:
            raise AcclimateError(
                f"expected {what} NAME=PATH for each of {', '.join(names)}, got {general} and "
                f"{word} for all"
            )
    if general is not None:
        if what == "--weights" and len(names) > 1:
            raise AcclimateError(
                f"expected --weights MODEL=FILE, one of {', '.join(names)}, got {general!r}"
            )
        found |= {name: general for name in names if name not in found}
    return found


def sweep_plan(
    plan: Plan, jobs: Sequence[Job], args: argparse.Namespace
) -> tuple[Store, Outcome | None]:
    """Run what is missing of a plan's jobs; a store is made only after all checks."""
    done = _done(jobs, args)
    for dataset in dict.fromkeys(job.dataset for job in jobs if job.key not in done):
        available = AvailableData(
            roots={dataset: str(plan.root(dataset))}, incomplete=args.incomplete
        )
        problem = available.nothing_of(dataset, split=plan.split_of(dataset))
        if problem is not None:
            raise AcclimateError(f"{problem}; check --root {dataset}=DIR")
    engine = engine_of(plan.roots, args)
    store = Store(args.store)
    return store, sweep(jobs, store, engine, args)


def sweep(
    jobs: Sequence[Job], store: Store, engine: Engine, args: argparse.Namespace
) -> Outcome | None:
    """Run what is missing; None where Ctrl-C stopped it."""
    try:
        with redirect_stdout(sys.stderr) if args.json else nullcontext():
            return run_jobs(jobs, store, engine, progress=not args.quiet)
    except KeyboardInterrupt:
        kept = counted(len(store.has(job.key for job in jobs)), "result")
        print(
            f"acclimate: interrupted; {kept} in {args.store}, from where the same command resumes",
            file=sys.stderr,
        )
        return None


def engine_of(roots: Mapping[str, str], args: argparse.Namespace) -> Engine:
    """Where jobs run; asked for before a store is made, since options may be refused."""
    refuse_launched("--engine processes --workers N")
    for name, engines in _CLUSTERS.items():
        if getattr(args, name) not in (None, []) and args.engine not in engines:
            got = "no --engine" if args.engine is None else f"--engine {args.engine}"
            option = name.replace("_", "-")
            raise AcclimateError(f"--{option} is for --engine {' or '.join(engines)}, got {got}")
    if args.engine == "inline" and (args.workers or 1) > 1:
        raise AcclimateError(
            f"expected one worker for --engine inline, got --workers {args.workers}; for several, "
            f"type --engine processes --workers {args.workers}"
        )
    if args.engine in ("ray", "slurm"):  # other machines have other working folders
        roots = {name: str(user_path(root).absolute()) for name, root in roots.items()}
    settings = WorkerSettings(
        roots=dict(roots),
        device=args.device,
        incomplete=args.incomplete,
        score=getattr(args, "score", "epochs"),
        speed=args.speed,
        progress=not args.quiet,
    )
    if args.engine == "ray":
        from acclimate.bench.engines.ray_engine import RayEngine

        return RayEngine(
            settings,
            address=args.address,
            workers=args.workers,
            cpus_per_job=1.0 if args.cpus_per_job is None else args.cpus_per_job,
            gpus_per_job=args.gpus_per_job,
        )
    if args.engine == "slurm":
        return _slurm(settings, args)
    several = args.workers is not None or (args.device in (None, "cuda") and gpus() > 1)
    if args.engine == "processes" or (args.engine is None and several and args.workers != 1):
        return ProcessEngine(settings, workers=args.workers)
    return InlineEngine(settings)


def _slurm(settings: WorkerSettings, args: argparse.Namespace) -> Engine:
    from acclimate.bench.engines.slurm import SlurmEngine

    parameters: dict[str, Any] = {}
    for option, parameter, least in (
        ("cpus-per-job", "cpus_per_task", 1),
        ("gpus-per-job", "gpus_per_node", 0),
    ):
        given = getattr(args, option.replace("-", "_"))
        value = float(least if given is None else given)
        if value < least or not value.is_integer():
            raise AcclimateError(
                f"--engine slurm: expected a whole number --{option} >= {least}, got {value:g}"
            )
        parameters[parameter] = int(value)
    for word in args.slurm:
        name, equals, text = word.partition("=")
        if not (name and equals and text):
            raise AcclimateError(
                f"expected --slurm NAME=VALUE, such as timeout_min=240, got {word!r}"
            )
        parameters[name] = _number(text)
    # Asked for by name: submitit would take processes of this machine where it finds no SLURM.
    cluster = parameters.pop("cluster", "slurm")
    return SlurmEngine(
        settings,
        folder=Path(f"{args.store}-tasks").absolute(),  # beside the store, where all nodes see it
        workers=1 if args.workers is None else args.workers,
        parameters=parameters,
        cluster=cluster,
    )


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def dry_run(jobs: Sequence[Job], args: argparse.Namespace) -> int:
    """Print how many jobs there are, how many are done, and what the next ones are."""
    done = _done(jobs, args)
    todo = [job for job in jobs if job.key not in done]
    if args.json:
        first = [job.to_dict() for job in todo[:_JOBS_SHOWN]]
        print(json.dumps({"jobs": len(jobs), "done": len(done), "first": first}))
        return OK
    print(f"{len(jobs):,} jobs, {len(done):,} of them done, {len(todo):,} to run")
    if todo:
        columns: dict[str, Callable[[Job], str]] = {
            "model": lambda job: job.model,
            "dataset": lambda job: job.dataset,
            "shift": lambda job: job.shift or "clean",
            "setting": lambda job: job.setting or STATIONARY,
            "recipe": lambda job: job.recipe,
            "options": lambda job: option_words(job.options, between=" ", none="-"),
            "seed": lambda job: str(job.seed),
        }
        if not any(job.setting for job in jobs):
            del columns["setting"]
        rows = [[words(job) for words in columns.values()] for job in todo[:_JOBS_SHOWN]]
        print(Table(rows, header=list(columns)).text())
    if len(todo) > _JOBS_SHOWN:
        print(f"… and {len(todo) - _JOBS_SHOWN:,} more")
    return OK


def _done(jobs: Sequence[Job], args: argparse.Namespace) -> set[str]:
    """The keys of jobs that are done; none is where there is no store yet."""
    if not is_made(user_path(args.store)):
        return set()
    return Store(args.store, create=False).has(job.key for job in jobs)


def failures(outcome: Outcome, args: argparse.Namespace) -> list[str]:
    """How many jobs were run, and why the first of those that failed did."""
    counts = f"{outcome.done:,} run, {outcome.skipped:,} done before"
    lines = [f"{counts}, {len(outcome.failed):,} failed; see acclimate results {args.store}"]
    if outcome.smaller:
        lines.append(
            f"  memory ran out for {outcome.smaller:,}, which used smaller batches than their "
            "options ask for; the notes of their results name the size"
        )
    lines += [f"  note: {warning}" for warning in outcome.warnings]
    for result in outcome.failed[:_FAILED_SHOWN]:
        job = result.job
        what = " ".join([job.model, job.dataset, job.shift or "clean", job.recipe])
        lines.append(f"  failed: {what}: {result.reason}")
    if len(outcome.failed) > _FAILED_SHOWN:
        lines.append(f"  … and {len(outcome.failed) - _FAILED_SHOWN:,} more")
    return lines


def plain_failures(outcome: Outcome) -> list[dict[str, Any]]:
    """Failed jobs and why, for JSON."""
    return [
        {"key": result.key, "job": result.job.to_dict(), "message": result.message}
        for result in outcome.failed
    ]
