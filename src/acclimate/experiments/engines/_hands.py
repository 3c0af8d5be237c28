"""Who gets which job next: groups stay with one worker while there are enough of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from acclimate.experiments.engines.base import grouped
from acclimate.experiments.job import Job

__all__ = ["Handout"]


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
