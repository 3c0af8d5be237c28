"""What all engines have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from acclimate.bench.job import Job
from acclimate.bench.record import Result
from acclimate.errors import AcclimateError
from acclimate.text import Score, Speed

if TYPE_CHECKING:
    from acclimate.bench.worker import Worker

__all__ = [
    "Engine",
    "Handout",
    "Losses",
    "OnResult",
    "WorkerSettings",
    "check_counts",
    "grouped",
]


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


def check_counts(*, workers: int | None, retries: int) -> None:
    """Refuse what no engine can do."""
    if workers is not None and workers < 1:
        raise AcclimateError(f"expected workers >= 1, got {workers}")
    if retries < 0:
        raise AcclimateError(f"expected retries >= 0, got {retries}")


def grouped(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs next to each other that share model and images: a worker should have all of a group.

    >>> jobs = [Job(model="m", dataset="mnist", recipe=recipe, shift=shift)
    ...         for shift in ("cifar/fog:1", "cifar/snow:1") for recipe in ("none", "ent")]
    >>> [len(group) for group in grouped(jobs)]
    [2, 2]
    """
    shared = attrgetter("model", "weights", "dataset", "split", "shift", "images")
    return [list(group) for _, group in groupby(jobs, key=shared)]


class Losses:
    """How often the worker of a job was lost.

    >>> losses, job = Losses(retries=1), Job(model="m", dataset="mnist", recipe="ent")
    >>> losses.too_many(job), losses.too_many(job)
    (None, '2 times')
    """

    def __init__(self, *, retries: int) -> None:
        self._retries = retries
        self._times: Counter[str] = Counter()

    def too_many(self, job: Job) -> str | None:
        """Count one more; in words how often it was, None where the job may be run again."""
        self._times[job.key] += 1
        times = self._times[job.key]
        if times <= self._retries:
            return None
        return "once" if times == 1 else f"{times} times"


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
        self._losses = Losses(retries=retries)

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

    def again(self, job: Job) -> str | None:
        """Put a job back whose worker died; not where it did so too often, in words how often."""
        times = self._losses.too_many(job)
        if times is None:
            self._groups.appendleft(deque([job]))
        return times
