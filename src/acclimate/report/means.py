"""The one mean of a page, and which settings have means that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from acclimate.bench.record import Result
from acclimate.metrics.mean import by_seeds, like, mean, on_the_same
from acclimate.metrics.mean import mean_over_shifts as mean_of_one
from acclimate.report.settings import Panel, panel_of

__all__ = ["Compared", "compared", "fullest", "mean_error", "mean_over_shifts"]

_K = TypeVar("_K")
_P = TypeVar("_P")


def mean_over_shifts(numbers: Iterable[tuple[Result, float]]) -> float:
    """The mean of a number of each result, of one at least, as tables have it.

    Over severities, then corruptions, each of which counts the same, then the seeds that ran on
    the most, and on the same.

    >>> from acclimate.bench import Job
    >>> shifts = {"fog:5": 32.0, "snow:5": 90.0, "snow:3": 50.0}
    >>> results = [Result(job=Job(model="m", dataset="d", recipe="ent", shift=s)) for s in shifts]
    >>> mean_over_shifts(zip(results, shifts.values()))
    51.0
    """
    runs: dict[Panel, list[tuple[int, str | None, int | None, float]]] = {}
    for result, number in numbers:
        job = result.job
        found = (job.seed, result.corruption, job.severity, number)
        runs.setdefault(panel_of(result), []).append(found)
    alike = [shifts for run in runs.values() for shifts in on_the_same(by_seeds(run)).values()]
    return mean([each for shifts in alike if (each := mean_of_one(shifts)) is not None])


def mean_error(results: Iterable[Result]) -> float | None:
    """The mean of the errors that are known; None where none is."""
    known = [(result, result.error) for result in results if result.error is not None]
    return mean_over_shifts(known) if known else None


def fullest(ran: Iterable[frozenset[_P]]) -> frozenset[_P]:
    """Of what each of several ran on, that which shows the most, where all who have it show it.

    >>> many, few = frozenset("abc"), frozenset("ab")
    >>> fullest([many, many, few]) == few, fullest([many, many, frozenset("a")]) == many
    (True, True)
    """
    sets = list(ran)

    def shows(on: frozenset[_P]) -> tuple[int, int]:
        having = sum(on <= other for other in sets)
        return having * len(on), having

    return max(dict.fromkeys(sets), key=shows, default=frozenset())


@dataclass(frozen=True, kw_only=True)
class Compared(Generic[_K]):
    """The mean errors of settings that ran on the same, and how many were left out for less."""

    errors: Mapping[_K, float]
    left_out: int

    @property
    def tried(self) -> int:
        """How many settings there are in all."""
        return len(self.errors) + self.left_out

    @property
    def best(self) -> _K:
        """The one with the lowest error."""
        return min(self.errors, key=lambda setting: self.errors[setting])


def compared(runs: Mapping[_K, Iterable[Result]]) -> Compared[_K]:
    """Settings that ran on the most images and seeds; one on fewer may have had the easier ones.

    Of several that ran on as many but others, those count that more settings ran on.
    """
    known = {key: [r for r in results if r.error is not None] for key, results in runs.items()}
    ran = {
        key: frozenset((panel_of(r), r.corruption, r.job.severity, r.job.seed) for r in results)
        for key, results in known.items()
        if results
    }
    errors = {key: mean_error(known[key]) for key in like(ran)}
    return Compared(
        errors={key: error for key, error in errors.items() if error is not None},
        left_out=len(ran) - len(errors),
    )
