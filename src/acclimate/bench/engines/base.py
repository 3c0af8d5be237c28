"""What all engines have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from acclimate.bench.job import Job
from acclimate.bench.record import Result
from acclimate.text import Score, Speed

if TYPE_CHECKING:
    from acclimate.bench.worker import Worker

__all__ = ["Engine", "Handout", "OnResult", "WorkerSettings", "grouped"]


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What every worker of a sweep is made with; plain values, to be sent to other processes.

    Attributes:
        roots: where each data set lies.
        device: where to run; None is CUDA when there is one, else the CPU.
        incomplete: continue, with a note in the result, where a data set is not whole.
        cache: bytes of images a worker keeps in memory; None is a third of what is free.
        score: predictions after all "epochs" of a run, or at its "end" alone.
        speed: as in `acclimate.adapt`; None is "auto" on a GPU and "exact" on a CPU, where "auto"
            takes what a clock finds faster, and the same job may end in other numbers.
        smallest_batch: how far batches are halved when memory runs out.
        progress: show bars on stderr.
    """

    roots: Mapping[str, str] = field(default_factory=dict)
    device: str | None = None
    incomplete: bool = False
    cache: int | None = None
    score: Score = "epochs"
    speed: Speed | None = None
    smallest_batch: int = 8
    progress: bool = False

    def worker(self) -> Worker:
        """A worker made with them, in this process."""
        from acclimate.bench.worker import Worker  # torch: only where jobs run

        return Worker(**vars(self))


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

        A job that cannot be run has a failed result; the others continue. An exception, from
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


class Handout:
    """Hands out jobs, group by group, and takes those back that nobody finished.

    Args:
        jobs: in the order in which those that share model and images are next to each other.
        retries: how often a job is given out again that its worker did not survive.

    >>> jobs = [Job(model="m", dataset="mnist", recipe=recipe, shift=shift)
    ...         for shift in ("cifar/fog:1", "cifar/snow:1") for recipe in ("none", "ent")]
    >>> handout = Handout(jobs)
    >>> [handout.next(worker).shift for worker in (0, 1, 0, 1)]
    ['cifar/fog:1', 'cifar/snow:1', 'cifar/fog:1', 'cifar/snow:1']
    >>> handout.next(0) is None
    True
    """

    def __init__(self, jobs: Sequence[Job], *, retries: int = 2) -> None:
        self._groups = deque(deque(group) for group in grouped(jobs))
        self._mine: dict[int, deque[Job]] = {}
        self._deaths: dict[str, int] = {}
        self._retries = retries

    def __len__(self) -> int:
        """How many jobs wait."""
        return sum(map(len, self._groups)) + sum(map(len, self._mine.values()))

    def next(self, worker: int) -> Job | None:
        """A job for a worker, None where none is left."""
        mine = self._mine.setdefault(worker, deque())
        if not mine and self._groups:
            mine.extend(self._groups.popleft())
        if not mine:
            longest = max(self._mine.values(), key=len)
            # Rather load a model once more than have a worker stand idle.
            mine.extendleft([longest.pop() for _ in range((len(longest) + 1) // 2)])
        return mine.popleft() if mine else None

    def give_back(self, worker: int) -> None:
        """A worker is gone: others may have what waited for it."""
        rest = self._mine.pop(worker, None)
        if rest:
            self._groups.appendleft(rest)

    def again(self, job: Job) -> int | None:
        """Put a job back whose worker died; None: it did so too often, now this many times."""
        deaths = self._deaths[job.key] = self._deaths.get(job.key, 0) + 1
        if deaths > self._retries:
            return deaths
        self._groups.appendleft(deque([job]))
        return None
