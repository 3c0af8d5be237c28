"""What all engines have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeAlias

from acclimate.experiments.engines.settings import WorkerSettings
from acclimate.experiments.job import Job
from acclimate.experiments.result import Result

__all__ = ["Engine", "OnResult", "grouped"]

OnResult: TypeAlias = Callable[[Result], None]


class Engine(ABC):
    """Runs jobs somewhere.

    A subclass writes :meth:`run`. It makes its workers with ``settings`` where they are to work
    (``settings.worker().run(job)``), and sends jobs and results as their plain values
    (``to_dict``, ``from_dict``).

    Attributes:
        settings: what workers are made with.
        workers: how many jobs run at once.
    """

    def __init__(self, settings: WorkerSettings, *, workers: int = 1) -> None:
        self.settings, self.workers = settings, workers

    @abstractmethod
    def run(self, jobs: Sequence[Job], on_result: OnResult) -> None:
        """Run every job; ``on_result`` is called here, in the caller's thread, once for each.

        A job that cannot be run has a failed result; the others go on. An exception, from
        ``on_result`` or a key, ends all workers before it is raised again.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.settings!r}, workers={self.workers})"


def grouped(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs next to each other that share model and images: a worker should have all of a group.

    >>> jobs = [Job(model="m", dataset="mnist", recipe=recipe, shift=shift)
    ...         for shift in ("cifar/fog:1", "cifar/snow:1") for recipe in ("none", "ent")]
    >>> [len(group) for group in grouped(jobs)]
    [2, 2]
    """
    return [list(group) for _, group in groupby(jobs, key=_shared)]


def _shared(job: Job) -> tuple[object, ...]:
    return (job.model, job.weights, job.dataset, job.split, job.shift, job.images)
