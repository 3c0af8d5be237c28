"""A worker in a process of its own, and what it is to the process that started it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from acclimate.errors import AcclimateError
from acclimate.experiments.engines.settings import WorkerSettings
from acclimate.experiments.job import Job

__all__ = ["Child"]


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

    def give(self, job: Job, *, halvings: int = 0) -> bool:
        """Send a job, with batches halved so often; False where the process has gone meanwhile."""
        self.job = job
        try:
            self.pipe.send((job.to_dict(), halvings))
        except OSError:
            return False
        return True

    def dismiss(self) -> None:
        """Tell it that there is nothing more to do."""
        with suppress(OSError):  # it has gone already
            self.pipe.send(None)

    def received(self) -> list[Any]:
        """All that was sent and has come in; nothing more comes once the process is gone."""
        messages = []
        try:
            while self.pipe.poll():
                messages.append(self.pipe.recv())
        except (EOFError, OSError):
            pass
        return messages

    @property
    def killed(self) -> bool:
        """Whether it was ended as the system does when memory runs out."""
        self.process.join(timeout=5)
        return self.process.exitcode == -signal.SIGKILL

    @property
    def end(self) -> str:
        """How the process ended, in words."""
        self.process.join(timeout=5)
        code = self.process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            memory = ", as the system does when memory runs out" if self.killed else ""
            return f"was ended by {name}{memory}"
        return f"ended with exit status {code}"

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
