"""How long the rest of a sweep will take, from how long jobs of its kind took."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import fmean
from typing import TypeAlias

from acclimate.experiments.job import Job
from acclimate.experiments.result import Result

__all__ = ["TimeLeft", "duration"]

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
        seconds = result.record.get("seconds")
        if seconds is not None:  # failed jobs say nothing about those that will not fail
            self._took[kind].append(seconds + result.record.get("loading_seconds", 0.0))

    def seconds(self) -> float | None:
        """What is left; None while nothing is known."""
        if not self._took:
            return None
        means = {kind: fmean(took) for kind, took in self._took.items()}
        usual = fmean(means.values())
        total = sum(count * means.get(kind, usual) for kind, count in self._left.items())
        return total / max(1, min(self._workers, self._left.total()))


def _kind(job: Job) -> _Kind:
    options = dict(job.options)
    epochs = options.get("epochs")
    return (job.model, job.dataset, job.recipe, epochs, job.images, job.forgetting)


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42.3), duration(700), duration(9000)
    ('42 s', '12 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
