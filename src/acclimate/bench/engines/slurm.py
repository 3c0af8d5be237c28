"""Jobs on a SLURM cluster through submitit: a few array tasks, each with its share of the jobs."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from acclimate.bench.engines.base import (
    Engine,
    Losses,
    OnResult,
    WorkerSettings,
    check_counts,
    grouped,
)
from acclimate.bench.job import Job
from acclimate.bench.record import Result
from acclimate.errors import AcclimateError
from acclimate.reading import read_object
from acclimate.text import user_path

__all__ = ["SlurmEngine", "run_share"]

_RESULT, _RESULTS, _REFUSED = ".json", "results-", "refused.txt"


class SlurmEngine(Engine):
    """Tasks that write their results as files, which this process reads into the store.

    A task that ends before its jobs do (the time limit, a lost node) is submitted again with what
    it left; the job it was at is failed after ``retries`` more times. This process has to live as
    long as the sweep: run it on the login node. Where it is stopped, its tasks are cancelled; where
    it is killed, the next one in the same folder takes what they went on to finish.

    Args:
        settings: what workers are made with.
        folder: for results and logs, on a disk that all nodes see.
        workers: how many tasks.
        parameters: of ``submitit.AutoExecutor``: ``{"slurm_partition": "gpu"}``.
        cluster: "slurm", or "local" for processes of this machine; None is what there is.
        retries: how often a job is run again whose task ended.
        poll: seconds between two looks.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        folder: str | Path,
        workers: int = 1,
        parameters: Mapping[str, Any] | None = None,
        cluster: str | None = None,
        retries: int = 2,
        poll: float = 5.0,
    ) -> None:
        check_counts(workers=workers, retries=retries)
        super().__init__(replace(settings, progress=False), workers=workers)
        self.folder, self.retries, self.poll = user_path(folder), retries, poll
        self._executor = _executor(self.folder, cluster, parameters or {})

    def run(self, jobs: Sequence[Job], on_result: OnResult) -> None:
        """Run every job."""
        self.folder.mkdir(parents=True, exist_ok=True)
        waiting = {job.key: job for job in jobs}
        for earlier in self.folder.glob(f"{_RESULTS}*"):  # of a sweep that did not live to read it
            _collect(earlier, waiting, on_result, only_done=True)
        jobs = list(waiting.values())
        if not jobs:
            return
        results = Path(tempfile.mkdtemp(prefix=_RESULTS, dir=self.folder))
        losses = Losses(retries=self.retries)
        tasks = {}
        try:
            for share in _shares(jobs, self.workers):
                tasks[self._submit(share, results)] = share
            while waiting:
                # Asked first: all that a task wrote is there by then.
                ended = [task for task in tasks if task.done()]
                _collect(results, waiting, on_result)
                refused = results / _REFUSED
                if refused.exists() and len(waiting) == len(jobs):  # else it may be one node's
                    raise AcclimateError(refused.read_text(encoding="utf-8"))
                for task in ended:
                    left = [job for job in tasks.pop(task) if job.key in waiting]
                    if left and (times := losses.too_many(left[0])) is not None:
                        # Asking submitit for the reason would wait for a file that nobody is going
                        # to write.
                        log = f"its log is {task.paths.stderr}"
                        reason = f"the task that ran this job ended, {times}; {log}"
                        on_result(Result.failed(waiting.pop(left[0].key), reason))
                        left = left[1:]
                    if left:
                        tasks[self._submit(left, results)] = left
                if waiting and not ended:
                    time.sleep(self.poll)
            shutil.rmtree(results, ignore_errors=True)  # all of it is in the store
        except KeyboardInterrupt:
            _collect(results, waiting, on_result)  # what is done is not thrown away
            raise
        finally:
            for task in tasks:
                if waiting and not task.done():  # else it ends by itself
                    task.cancel(check=False)

    def _submit(self, share: Sequence[Job], results: Path) -> Any:
        plain = [job.to_dict() for job in share]
        return self._executor.submit(run_share, self.settings, plain, str(results))


def run_share(settings: WorkerSettings, jobs: Sequence[dict[str, Any]], folder: str) -> int:
    """What a task does: one job after the other, each result in a file that is whole or not there.

    A worker whose device broke ends the task; another one continues.
    """
    try:
        worker = settings.worker()
    except AcclimateError as error:
        _write_whole(Path(folder) / _REFUSED, str(error))
        return 0
    for plain in jobs:
        job = Job.from_dict(plain)
        result = worker.run(job).to_dict()
        _write_whole(Path(folder) / f"{job.key}{_RESULT}", json.dumps(result))
        if worker.broken:
            break
    return len(jobs)


def _write_whole(target: Path, text: str) -> None:
    part = target.with_suffix(f".{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(target)


def _collect(
    results: Path, waiting: dict[str, Job], on_result: OnResult, *, only_done: bool = False
) -> None:
    for file in sorted(results.glob(f"*{_RESULT}")):
        if file.stem not in waiting:
            continue
        result = Result.from_dict(read_object(file))
        if result.status == "done" or not only_done:
            del waiting[file.stem]
            on_result(result)
            file.unlink()  # one that the store refused is to be run next time, not read again


def _shares(jobs: Sequence[Job], count: int) -> list[list[Job]]:
    """Jobs in so many shares of about the same size; groups stay together while there are enough.

    >>> jobs = [Job(model="m", dataset="mnist", recipe="ent", seed=seed) for seed in range(5)]
    >>> [len(share) for share in _shares(jobs, 2)]
    [3, 2]
    """
    ordered = [job for group in grouped(jobs) for job in group]
    size = -(-len(ordered) // count)
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def _executor(folder: Path, cluster: str | None, parameters: Mapping[str, Any]) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise AcclimateError(
            "--engine slurm needs submitit, which is not installed; pip install 'acclimate[slurm]'"
        ) from error
    try:
        executor = submitit.AutoExecutor(folder=str(folder / "%j"), cluster=cluster)
        executor.update_parameters(**{"timeout_min": 240, **parameters})
    except (AssertionError, NameError, TypeError, ValueError, RuntimeError) as error:
        raise AcclimateError(
            f"submitit refuses this: {error}; --slurm cluster=local needs no SLURM"
        ) from error
    return executor
