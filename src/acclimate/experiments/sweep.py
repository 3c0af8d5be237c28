"""A plan run to its end: what is missing in the store, and only that."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.experiments._announcing import announced
from acclimate.experiments._datasets import root_of
from acclimate.experiments._machine import OUT_OF_MEMORY
from acclimate.experiments._time_left import TimeLeft, duration
from acclimate.experiments.engines.base import Engine
from acclimate.experiments.job import Job
from acclimate.experiments.plan import Plan
from acclimate.experiments.result import Result
from acclimate.experiments.store import RefusedResultError, Store

__all__ = ["Outcome", "run_jobs", "run_plan"]

_TWICE = (
    "another sweep ({}) is adding to {}: jobs that both have are run twice, and kept once; let it "
    "end, or give this one other shifts"
)
_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of the jobs of a sweep.

    Attributes:
        done: how many were run, and are in the store now.
        skipped: how many were there already.
        failed: the results of those that could not be run; they are run again next time.
        smaller: how many took smaller batches than asked for, since memory ran out.
        remarks: what one should know before one believes the numbers, each once.
    """

    done: int
    skipped: int
    failed: tuple[Result, ...] = ()
    smaller: int = 0
    remarks: tuple[str, ...] = ()


def run_plan(plan: Plan, store: Store, engine: Engine, *, progress: bool = True) -> Outcome:
    """Run what is missing of a plan: jobs that are done are skipped, failed ones are run again.

    Every result is in the store before the next one is seen to, so that nothing is lost when the
    sweep is stopped or killed: the same call goes on.

    Args:
        plan: what is to be run.
        store: where results are kept. Only this process writes to it.
        engine: where jobs run.
        progress: show a bar on stderr, with the time that is left.
    """
    return run_jobs(plan.jobs(), store, engine, progress=progress)


def run_jobs(
    jobs: Sequence[Job], store: Store, engine: Engine, *, progress: bool = True
) -> Outcome:
    """`run_plan` for jobs from anywhere; those that share model and images next to each other."""
    unique = {job.key: job for job in jobs}
    done = store.has(unique)
    todo = [job for key, job in unique.items() if key not in done]
    _check_roots(todo, engine)
    failed: list[Result] = []
    smaller: list[Result] = []
    remarks: dict[str, None] = {}  # a set that keeps its order
    left = TimeLeft(todo, workers=engine.workers)
    with tqdm(
        total=len(todo), desc="jobs", unit="job", bar_format=_BAR, disable=not progress or not todo
    ) as bar:

        def on_result(result: Result) -> None:
            kept = _keep(store, result)
            if kept.status == "failed":
                failed.append(kept)
            elif any(note.startswith(OUT_OF_MEMORY) for note in kept.record.get("notes") or ()):
                smaller.append(kept)
            if (said := kept.record.get("unlike_classes")) is not None:
                remarks[said] = None
            left.learn(kept)
            bar.set_postfix_str(_words(left, len(failed)), refresh=False)
            bar.update()

        if todo:
            store.check_writable()
            with announced(store.path) as other:
                if other is not None:
                    warnings.warn(_TWICE.format(other, store.path), AcclimateWarning, stacklevel=2)
                engine.run(todo, on_result)
    return Outcome(
        done=len(todo) - len(failed),
        skipped=len(unique) - len(todo),
        failed=tuple(failed),
        smaller=len(smaller),
        remarks=tuple(remarks),
    )


def _keep(store: Store, result: Result) -> Result:
    """Add a result; one that the store refuses, since its images are others, is a failed one."""
    try:
        store.add(result)
    except RefusedResultError as error:
        result = Result.failed(result.job, str(error))
        store.add(result)
    except AcclimateError:
        # Another process may have held it for long. What is wrong with the store itself is wrong
        # again, and ends the sweep.
        store.add(result)
    return result


def _check_roots(jobs: Sequence[Job], engine: Engine) -> None:
    for name in dict.fromkeys(job.dataset for job in jobs):
        root_of(name, engine.settings.roots)


def _words(left: TimeLeft, failed: int) -> str:
    seconds = left.seconds()
    words = [] if seconds is None else [f"about {duration(seconds)} left"]
    return ", ".join([*words, *([f"{failed} failed"] if failed else [])])
