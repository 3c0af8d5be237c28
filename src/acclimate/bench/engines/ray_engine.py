"""Jobs on a Ray cluster: one that is started here for the sweep, or one that is there."""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from acclimate.bench.engines.base import Engine, Handout, OnResult, WorkerSettings, check_counts
from acclimate.bench.job import Job
from acclimate.bench.record import Result
from acclimate.errors import AcclimateError

__all__ = ["RayEngine"]


class RayWorker:
    """An actor. It is made empty: what can go wrong is said by `ready`, and not lost."""

    def __init__(self, settings: WorkerSettings, threads: int) -> None:
        self._settings, self._threads, self._worker = settings, threads, None  # type: Any, int, Any

    def ready(self) -> str | None:
        """Make the worker; why that cannot be done, None where it can."""
        try:
            import torch

            torch.set_num_threads(self._threads)
            self._worker = self._settings.worker()
        except AcclimateError as error:
            return str(error)
        except Exception as error:  # an old driver, a library that a node lacks
            return f"a Ray worker cannot begin: {type(error).__name__}: {error}"
        return None

    def run(self, plain: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The result of a job, and whether this worker is of no more use."""
        result = self._worker.run(Job.from_dict(plain))
        return result.to_dict(), self._worker.broken


_ANSWERS_WITHIN = 5.0
"""Seconds."""
_FALSE_STARTS = 3
"""Of each worker, one after the other; a lost node takes several at once."""


@dataclass
class _Hand:
    number: int
    actor: Any
    job: Job | None = None


class RayEngine(Engine):
    """Actors that get one job at a time, of one model and shift while there are some.

    Every node needs this package and the data sets at the same paths; results come back to the
    process that called, which alone writes to the store. An actor whose node is lost, or whose GPU
    can no longer be used, is replaced as soon as there is room for it; its job is run again, and
    failed after ``retries`` more losses.

    Args:
        settings: what workers are made with.
        address: of a cluster, "auto" for the one this machine belongs to; None starts one here,
            unless this process is connected to one already.
        workers: how many; None is as many as the cluster has room for.
        cpus_per_job: cores that a job reserves, and threads it uses.
        gpus_per_job: GPUs that a job reserves, also parts of one; None is one where there are any.
        retries: how often a job is run again that was lost.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        address: str | None = None,
        workers: int | None = None,
        cpus_per_job: float = 1.0,
        gpus_per_job: float | None = None,
        retries: int = 2,
    ) -> None:
        check_counts(workers=workers, retries=retries)
        if cpus_per_job <= 0 or (gpus_per_job or 0) < 0:
            raise AcclimateError(
                f"expected cpus_per_job > 0 and gpus_per_job >= 0, got {cpus_per_job:g} and "
                f"{gpus_per_job or 0:g}"
            )
        self._ray = _connected(address)
        self.retries, self.cpus_per_job = retries, cpus_per_job
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if gpus_per_job is None:
            wanted = settings.device != "cpu"
            gpus_per_job = float(wanted and any(node.get("GPU", 0) >= 1 for node in nodes))
        self.gpus_per_job = gpus_per_job
        room = sum(self._fit(node) for node in nodes)
        if not room:
            have = "; ".join(f"{n.get('CPU', 0):g} CPUs, {n.get('GPU', 0):g} GPUs" for n in nodes)
            raise AcclimateError(
                f"no node has room for a job with {cpus_per_job:g} CPUs and {gpus_per_job:g} GPUs; "
                f"nodes: {have}; ask for fewer (--cpus-per-job, --gpus-per-job)"
            )
        super().__init__(replace(settings, progress=False), workers=workers or room)
        self._false_starts = self._started = 0

    def run(self, jobs: Sequence[Job], on_result: OnResult) -> None:
        """Run every job."""
        handout, hands = Handout(jobs, retries=self.retries), {}  # type: Handout, dict[Any, _Hand]
        self._false_starts, self._started = 0, min(self.workers, len(jobs))
        try:
            for number in range(self._started):
                self._start(number, hands)
            # Who has no job by then waits for room, or for work that is not there.
            while len(handout) or any(hand.job is not None for hand in hands.values()):
                (ref,), _ = self._ray.wait(list(hands), num_returns=1)
                self._answer(hands, ref, handout, on_result)
        except KeyboardInterrupt:
            came, _ = self._ray.wait(list(hands), num_returns=len(hands), timeout=0)
            for ref in came:  # what has come in is done, and is not thrown away
                if hands[ref].job is not None:
                    with suppress(self._ray.exceptions.RayError):
                        on_result(Result.from_dict(self._ray.get(ref)[0]))
            raise
        finally:
            for hand in hands.values():
                self._ray.kill(hand.actor)

    def _fit(self, node: dict[str, float]) -> int:
        by_cpu = node.get("CPU", 0) / self.cpus_per_job
        by_gpu = node.get("GPU", 0) / self.gpus_per_job if self.gpus_per_job else math.inf
        return math.floor(min(by_cpu, by_gpu) + 1e-9)

    def _start(self, number: int, hands: dict[Any, _Hand]) -> None:
        made = self._ray.remote(RayWorker).options(
            num_cpus=self.cpus_per_job, num_gpus=self.gpus_per_job, max_restarts=0
        )
        actor = made.remote(self.settings, max(1, int(self.cpus_per_job)))
        hands[actor.ready.remote()] = _Hand(number, actor)

    def _answer(
        self, hands: dict[Any, _Hand], ref: Any, handout: Handout, on_result: OnResult
    ) -> None:
        """See to what came of a call: ready, a result, or nothing more to come from there."""
        errors, hand = self._ray.exceptions, hands.pop(ref)
        try:
            answer = self._ray.get(ref)
        except (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError) as error:
            how = str(error).strip().splitlines()[0]
            self._lost(hand, how, handout, on_result)
            busy = any(other.job for other in hands.values())  # and gets on with it
            if not busy and self._false_starts >= _FALSE_STARTS * self._started:
                raise AcclimateError(
                    f"{self._false_starts} Ray workers in a row were lost before they could begin; "
                    f"every node needs this package and what it needs. The last: {how}"
                ) from error
            self._start(hand.number, hands)
            return
        if hand.job is None and answer is not None:
            raise AcclimateError(answer)
        self._false_starts = 0
        finished = Result.from_dict(answer[0]) if hand.job is not None else None
        if finished is not None and answer[1]:
            # Another process on the GPU may have broken it: not the job's fault yet.
            self._ray.kill(hand.actor)
            handout.give_back(hand.number)
            self._start(hand.number, hands)
            if handout.again(finished.job) is None:
                return
        # The next job first: nobody has to wait while a result is written.
        elif (job := handout.next(hand.number)) is not None:
            hands[hand.actor.run.remote(job.to_dict())] = _Hand(hand.number, hand.actor, job)
        else:
            self._ray.kill(hand.actor)  # what it reserved is free for others
        if finished is not None:
            on_result(finished)

    def _lost(self, hand: _Hand, how: str, handout: Handout, on_result: OnResult) -> None:
        handout.give_back(hand.number)
        if hand.job is None:
            self._false_starts += 1
        elif (times := handout.again(hand.job)) is not None:
            reason = f"the Ray worker that ran this job was lost, {times}: {how}"
            on_result(Result.failed(hand.job, reason))


def _connected(address: str | None) -> Any:
    try:
        import ray
    except ImportError as error:
        raise AcclimateError(
            "--engine ray needs Ray, which is not installed; pip install 'acclimate[ray]'"
        ) from error
    if ray.is_initialized():
        return ray
    where = address or "local"
    host, _, port = where.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():  # else auto or local, where Ray looks itself
            # Whether anybody answers shows at once; Ray would try for minutes.
            place = (host.strip("[]"), int(port))
            socket.create_connection(place, timeout=_ANSWERS_WITHIN).close()
        ray.init(address=where, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (OSError, ValueError) as error:
        if address is None:
            raise AcclimateError(f"Ray cannot start on this machine: {error}") from error
        raise AcclimateError(
            f"no Ray cluster at {address!r}: {error}; start one (ray start --head), or leave "
            "--address out for one of this machine alone"
        ) from error
    return ray
