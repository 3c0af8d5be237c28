"""Jobs in several processes of this machine: one for each GPU, or for a few cores each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from acclimate.data.memory import cache_budget
from acclimate.errors import AcclimateError
from acclimate.experiments.engines._child import Child
from acclimate.experiments.engines._hands import Handout
from acclimate.experiments.engines.base import Engine, OnResult
from acclimate.experiments.engines.settings import WorkerSettings
from acclimate.experiments.job import Job
from acclimate.experiments.result import Result

__all__ = ["ProcessEngine", "gpus", "usable_cores", "usual_workers"]

_CORES_EACH = 4
_FALSE_STARTS = 3
_GOODBYE = 10.0  # seconds to leave in


class ProcessEngine(Engine):
    """Worker processes that get one job at a time, of one model and shift while there are some.

    With GPUs, worker ``i`` has GPU ``i`` (modulo their number), without them its share of the
    cores. A worker that dies, or whose GPU can no longer be used, is replaced; its job is run
    again, and failed after ``retries`` more times; from the second time on that it was killed, as
    the system does when memory runs out, with half the batch. A script that starts this needs
    ``if __name__ == "__main__":``, as with all that is spawned.

    Args:
        settings: what workers are made with.
        workers: how many; None is one for each GPU, or for four cores.
        retries: how often a job is run again whose worker was lost.
    """

    def __init__(
        self, settings: WorkerSettings, *, workers: int | None = None, retries: int = 2
    ) -> None:
        if workers is not None and workers < 1:
            raise AcclimateError(f"expected workers >= 1, got {workers}")
        if retries < 0:
            raise AcclimateError(f"expected retries >= 0, got {retries}")
        super().__init__(settings, workers=workers or usual_workers(settings.device))
        self.retries = retries
        self._children: list[Child] = []
        self._leaving: list[Child] = []
        self._number = 0
        self._false_starts = 0
        self._killed: dict[str, int] = {}

    def run(self, jobs: Sequence[Job], on_result: OnResult) -> None:
        """Run every job."""
        handout = Handout(jobs, retries=self.retries)
        self._false_starts = 0
        try:
            for _ in range(min(self.workers, len(jobs))):
                self._start()
            while self._children:
                self._turn(handout, on_result)
        except KeyboardInterrupt:
            for child in self._children:  # what has come in is done, and is not thrown away
                for message in child.received():
                    if isinstance(message, tuple):
                        on_result(Result.from_dict(message[0]))
            raise
        finally:
            self._stop()

    def _start(self) -> None:
        threads, device = None, _device(self.settings.device, self._number)
        if device is None or device == "cpu":
            threads = max(1, usable_cores() // self.workers)
        # Each would take a third of the memory, not knowing of the others.
        cache = cache_budget(self.settings.cache) // self.workers
        settings = replace(self.settings, device=device, cache=cache, progress=False)
        self._children.append(Child(self._number, settings, threads=threads))
        self._number = (self._number + 1) % self.workers

    def _turn(self, handout: Handout, on_result: OnResult) -> None:
        """Wait for something to happen, and see to it."""
        ends: dict[Any, Child] = {}
        for child in self._children:
            ends[child.pipe] = ends[child.process.sentinel] = child
        for child in {id(c): c for c in (ends[each] for each in wait(list(ends)))}.values():
            dead = not child.process.is_alive()  # asked first: what it sent before is still there
            for message in child.received():
                self._message(child, message, handout, on_result)
            if dead and child in self._children:
                self._replace(child, handout, on_result)

    def _message(self, child: Child, message: Any, handout: Handout, on_result: OnResult) -> None:
        if isinstance(message, str):
            raise AcclimateError(message)
        child.ready, child.job, self._false_starts = True, None, 0
        plain, broken = message or (None, False)
        result = None if plain is None else Result.from_dict(plain)
        if result is not None and broken:
            # Another process on the GPU may have broken it: not the job's fault yet.
            if handout.again(result.job) is not None:
                on_result(result)
            return  # the worker ends, and is replaced
        # The next job first: nobody has to wait while a result is written.
        job = handout.next(child.number)
        if job is not None:
            # Where that fails the process has died, and is seen to as such.
            child.give(job, halvings=max(0, self._killed.get(job.key, 0) - 1))
        if result is not None:
            on_result(result)
        if job is None:
            self._children.remove(child)
            self._leaving.append(child)
            child.dismiss()

    def _replace(self, child: Child, handout: Handout, on_result: OnResult) -> None:
        how = child.end
        if child.job is not None and child.killed:
            self._killed[child.job.key] = self._killed.get(child.job.key, 0) + 1
        self._children.remove(child)
        child.stop()
        handout.give_back(child.number)
        if not child.ready:
            self._false_starts += 1
            if self._false_starts >= _FALSE_STARTS:
                raise AcclimateError(
                    f"{_FALSE_STARTS} worker processes in a row {how} before they could begin; "
                    "what they said is above. A script that starts them needs "
                    "if __name__ == '__main__': around what it does"
                )
        if child.job is not None:
            deaths = handout.again(child.job)
            if deaths is not None:
                times = "once" if deaths == 1 else f"{deaths} times"
                said = f"the process that ran this job {how}, {times}; nothing more is known"
                on_result(Result.failed(child.job, said))
        if len(handout):
            self._number = child.number
            self._start()

    def _stop(self) -> None:
        for child in self._leaving:
            child.process.join(timeout=_GOODBYE)
        for child in (*self._leaving, *self._children):
            child.stop()
        self._children, self._leaving, self._number = [], [], 0


def usable_cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux tells
        return os.cpu_count() or 1


def usual_workers(device: str | None) -> int:
    """One for each GPU, or for a few cores each.

    >>> usual_workers("cuda:1")
    1
    """
    if device in (None, "cuda") and (count := gpus()):
        return count
    return max(1, usable_cores() // _CORES_EACH) if device in (None, "cpu") else 1


def gpus() -> int:
    """How many GPUs there are."""
    import torch

    return torch.cuda.device_count()


def _device(device: str | None, number: int) -> str | None:
    """The device of a worker: GPUs in turn, unless one is named."""
    if device in (None, "cuda") and (count := gpus()):
        return f"cuda:{number % count}"
    return device
