"""Jobs in several processes of this machine: one for each GPU, or for a few cores each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

from acclimate.bench.engines.base import Engine, Handout, OnResult, WorkerSettings, check_counts
from acclimate.bench.job import Job
from acclimate.bench.record import Result
from acclimate.data.memory import cache_budget
from acclimate.errors import AcclimateError

__all__ = ["InlineEngine", "ProcessEngine", "gpus"]


class Child:
    """A started worker process, the job it has, and the pipe to it.

    Every worker has a pipe of its own: a shared queue has a lock, and a worker that is killed
    while it holds that lock would stop all others.
    """

    def __init__(self, number: int, settings: WorkerSettings, *, threads: int | None) -> None:
        spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.number, self.job, self.ready = number, None, False  # type: int, Job | None, bool
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(
            target=_work,
            args=(theirs, settings, threads),
            name=f"acclimate-worker-{number}",
            daemon=True,
        )
        self.process.start()
        theirs.close()  # so that the pipe ends when the worker does

    def give(self, job: Job, *, halvings: int) -> None:
        """Send a job, with batches halved so often."""
        self.job = job
        with suppress(OSError):  # where the process has died, that is seen to as such
            self.pipe.send((job.to_dict(), halvings))

    def received(self) -> list[Any]:
        """All that was sent and has come in; nothing more comes once the process is gone."""
        messages = []
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                messages.append(self.pipe.recv())
        return messages

    def end(self) -> tuple[str, bool]:
        """How the process ended, in words, and whether as it does when memory runs out."""
        self.process.join(timeout=5)
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"ended with exit status {code}", False
        killed = code == -signal.SIGKILL
        memory = ", as the system does when memory runs out" if killed else ""
        return f"was ended by {signal.Signals(-code).name}{memory}", killed

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()  # it holds nothing that it could leave half written
        self.process.join()
        self.pipe.close()


def _work(pipe: Connection, settings: WorkerSettings, threads: int | None) -> None:
    """What the worker process does: one job after the other, until it is dismissed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch
    from tqdm import tqdm

    # Its own lock is a semaphore of the system, which would outlive a worker that is killed.
    tqdm.set_lock(threading.RLock())
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        worker = settings.worker()
    except AcclimateError as error:
        pipe.send(str(error))
        return
    pipe.send(None)
    while not worker.broken:
        sent = pipe.recv()
        if sent is None:
            return
        plain, halvings = sent
        result = worker.run(Job.from_dict(plain), halvings=halvings)
        pipe.send((result.to_dict(), worker.broken))


def _end_with_parent() -> None:
    """A sweep that was killed leaves no workers behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


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
        check_counts(workers=workers, retries=retries)
        super().__init__(settings, workers=workers or usual_workers(settings.device))
        self.retries = retries
        self._children: list[Child] = []
        self._leaving: list[Child] = []
        self._number = 0
        self._false_starts = 0
        self._killed: Counter[str] = Counter()

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
        threads, device = None, self.settings.device
        if device in (None, "cuda") and (count := gpus()):
            device = f"cuda:{self._number % count}"
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
        for child in dict.fromkeys(ends[each] for each in wait(list(ends))):
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
            child.give(job, halvings=max(0, self._killed[job.key] - 1))
        if result is not None:
            on_result(result)
        if job is None:
            self._children.remove(child)
            self._leaving.append(child)
            with suppress(OSError):  # it has gone already
                child.pipe.send(None)

    def _replace(self, child: Child, handout: Handout, on_result: OnResult) -> None:
        how, killed = child.end()
        if child.job is not None and killed:
            self._killed[child.job.key] += 1
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
            times = handout.again(child.job)
            if times is not None:
                reason = f"the process that ran this job {how}, {times}; nothing more is known"
                on_result(Result.failed(child.job, reason))
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


class InlineEngine(Engine):
    """One worker, here. What it has loaded is kept for the next call.

    >>> results = []
    >>> job = Job(model="acclimate:digits", dataset="mnist", recipe="ent")
    >>> InlineEngine(WorkerSettings(device="cpu")).run([job], results.append)
    >>> results[0].status
    'failed'
    """

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(settings)
        self._worker = settings.worker()

    def run(self, jobs: Sequence[Job], on_result: OnResult) -> None:
        """Run every job."""
        for job in jobs:
            on_result(self._worker.run(job))
            if self._worker.broken:
                raise AcclimateError(
                    f"the device {self._worker.device} can no longer be used by this process, and "
                    "the jobs that are left would all fail; run the same again, or with processes, "
                    "which are replaced"
                )
