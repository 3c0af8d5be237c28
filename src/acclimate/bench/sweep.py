"""A plan run to its end: what is missing in the store, and only that."""

from __future__ import annotations

import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from tqdm import tqdm

from acclimate.bench.engines.base import Engine
from acclimate.bench.job import Job
from acclimate.bench.plan import Plan, root_of
from acclimate.bench.record import Result
from acclimate.bench.store import RefusedResultError, Store
from acclimate.bench.worker import OUT_OF_MEMORY
from acclimate.callbacks import Callback, JobRecord, check_callbacks
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.files import held

__all__ = ["Outcome", "announced", "duration", "run_jobs", "run_plan"]


@contextmanager
def announced(store: Path) -> Iterator[str | None]:
    """Hold the mark of a store; "process 123" where another process holds it already.

    Where a mark cannot be had (Windows, some network disks, folders of others), nobody is known.

    >>> import tempfile
    >>> store = Path(tempfile.mkdtemp()) / "sweep.db"
    >>> with announced(store) as other:
    ...     print(other)
    None
    """
    mark, other = store.resolve().with_name(f"{store.resolve().name}-sweep"), None
    with ExitStack() as until_the_end:
        with suppress(OSError):  # a courtesy, which no sweep is to fail for
            if until_the_end.enter_context(held(mark)):
                mark.write_text(str(os.getpid()))
                # Emptied, not removed: who has opened it meanwhile would hold the mark of nothing.
                until_the_end.callback(_empty, mark)
            else:
                other = f"process {mark.read_text() or 'unknown'}"
        yield other


def _empty(mark: Path) -> None:
    with suppress(OSError):  # the folder is gone, or may no longer be written to
        mark.write_text("")


_Kind: TypeAlias = tuple[object, ...]


class TimeLeft:
    """Seconds by kind of job (model, data set, recipe, epochs), and what is left of each kind.

    >>> jobs = [Job(model="m", dataset="mnist", recipe=recipe) for recipe in ("none", "ent", "rpl")]
    >>> left = TimeLeft(jobs, workers=1)
    >>> left.seconds() is None
    True
    >>> left.learn(Result(job=jobs[0], record={"seconds": 4.0}))
    >>> left.seconds()
    8.0
    """

    def __init__(self, jobs: Iterable[Job], *, workers: int) -> None:
        self._left = Counter(map(_kind, jobs))
        self._took: dict[_Kind, list[float]] = defaultdict(list)
        self._workers = workers

    def learn(self, result: Result) -> None:
        """A job came to its end."""
        kind = _kind(result.job)
        self._left[kind] -= 1
        seconds = result.record.seconds
        if seconds is not None:  # failed jobs say nothing about those that will not fail
            self._took[kind].append(seconds + (result.record.loading_seconds or 0.0))

    def seconds(self) -> float | None:
        """What is left; None while nothing is known."""
        if not self._took:
            return None
        means = {kind: fmean(took) for kind, took in self._took.items()}
        usual = fmean(means.values())
        total = sum(count * means.get(kind, usual) for kind, count in self._left.items())
        return total / max(1, min(self._workers, self._left.total()))


def _kind(job: Job) -> _Kind:
    epochs = dict(job.options).get("epochs")
    return (job.model, job.dataset, job.recipe, epochs, job.images, job.forgetting)


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42.3), duration(700), duration(9000)
    ('42 s', '12 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


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
        warnings: what one should know before one believes the numbers, each once.
    """

    done: int
    skipped: int
    failed: tuple[Result, ...] = ()
    smaller: int = 0
    warnings: tuple[str, ...] = ()


def run_plan(
    plan: Plan,
    store: Store,
    engine: Engine,
    *,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """Run what is missing of a plan: jobs that are done are skipped, failed ones are run again.

    Every result is in the store before the next one is seen to, so that nothing is lost when the
    sweep is stopped or killed: the same call resumes it.

    Args:
        plan: what is to be run.
        store: where results are kept. Only this process writes to it.
        engine: where jobs run.
        progress: show a bar on stderr, with the time that is left.
        callbacks: called as each job ends (:mod:`acclimate.callbacks`).
    """
    return run_jobs(plan.jobs(), store, engine, progress=progress, callbacks=callbacks)


def run_jobs(
    jobs: Sequence[Job],
    store: Store,
    engine: Engine,
    *,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """`run_plan` for jobs from anywhere; those that share model and images next to each other."""
    called, ended = check_callbacks(callbacks), count(1)
    unique = {job.key: job for job in jobs}
    done = store.has(unique)
    todo = [job for key, job in unique.items() if key not in done]
    for name in dict.fromkeys(job.dataset for job in todo):
        root_of(name, engine.settings.roots)
    failed: list[Result] = []
    smaller = 0
    unlike: dict[str, None] = {}  # a set that keeps its order
    left = TimeLeft(todo, workers=engine.workers)
    with tqdm(
        total=len(todo), desc="jobs", unit="job", bar_format=_BAR, disable=not progress or not todo
    ) as bar:

        def on_result(result: Result) -> None:
            nonlocal smaller
            kept = _keep(store, result)
            if kept.status == "failed":
                failed.append(kept)
            elif any(note.startswith(OUT_OF_MEMORY) for note in kept.record.notes):
                smaller += 1
            if (warned := kept.record.unlike_classes) is not None:
                unlike[warned] = None
            if called:
                record = _recorded(kept, next(ended))
                for callback in called:
                    callback.on_job_end(record)
            left.learn(kept)
            seconds = left.seconds()
            words = [] if seconds is None else [f"about {duration(seconds)} left"]
            words += [f"{len(failed)} failed"] if failed else []
            bar.set_postfix_str(", ".join(words), refresh=False)
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
        smaller=smaller,
        warnings=tuple(unlike),
    )


def _recorded(result: Result, number: int) -> JobRecord:
    job = result.job
    return JobRecord(
        number=number,
        model=job.model,
        dataset=job.dataset,
        shift=job.shift,
        recipe=job.recipe,
        options=dict(job.options),
        seed=job.seed,
        error=result.error,
        unadapted=result.unadapted_error,
        seconds=result.record.seconds,
        reason=result.reason if result.status == "failed" else None,
    )


def _keep(store: Store, result: Result) -> Result:
    """Add a result; one that the store refuses, since its images are others, is a failed one."""
    try:
        store.add(result)
        return result
    except RefusedResultError as error:
        result = Result.failed(result.job, str(error))
    except AcclimateError:
        pass  # another process may have held it for long
    # What is wrong with the store itself is wrong again, and ends the sweep.
    store.add(result)
    return result
