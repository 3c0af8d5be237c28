"""Runs at several learning rates as a grid of mean errors, by rate and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from acclimate.bench.record import Result
from acclimate.bench.selection import states_of
from acclimate.report.means import fullest, mean_over_shifts

__all__ = ["Grid", "rate_grid", "rate_of", "usable"]


class _Mean(NamedTuple):
    """Of so many runs: after the epoch, of the source model, and with nothing learnt.

    Collapsed are those that answer fewer than half of the classes they answered at the start.
    """

    error: float
    unadapted: float
    start: float
    runs: int
    collapsed: int


Grid: TypeAlias = dict[tuple[float, int], _Mean]
_Runs: TypeAlias = dict[tuple[float, int], list[tuple[Result, tuple[float, float, float, bool]]]]


def rate_of(result: Result) -> float | None:
    """The learning rate of a run: as recorded in full, else as it was asked for."""
    asked = dict(result.job.options).get("optimizer.lr")
    rate = asked if result.record.rate is None else result.record.rate
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def usable(result: Result) -> bool:
    """Whether a run can stand in a grid."""
    return (
        rate_of(result) is not None
        and result.unadapted_error is not None
        and any(error is not None for error in result.record.errors.after_epoch)
    )


def rate_grid(results: Sequence[Result]) -> tuple[Grid, int]:
    """Means over shifts and seeds; of runs that differ in their length alone the longest counts.

    All are of the same shifts and seeds; how many places were left out, not having all of these.
    """
    longest: dict[tuple[float, str | None, int], Result] = {}
    for result in results:
        rate = rate_of(result)
        if rate is None or not usable(result):
            continue
        run = (rate, result.job.shift, result.job.seed)
        longest[run] = max(longest.get(run, result), result, key=_epochs)
    gathered: _Runs = {}
    for (rate, _, _), result in longest.items():
        states = states_of(result)
        for epoch, error in enumerate(result.record.errors.after_epoch, 1):
            if error is not None and result.unadapted_error is not None:
                start = result.record.errors.start
                source = result.unadapted_error
                began = source if start is None else start
                found = (error, source, began, states[epoch].collapsed)
                gathered.setdefault((rate, epoch), []).append((result, found))
    grid = {
        place: _Mean(
            error=mean_over_shifts((run, found[0]) for run, found in runs),
            unadapted=mean_over_shifts((run, found[1]) for run, found in runs),
            start=mean_over_shifts((run, found[2]) for run, found in runs),
            runs=len(runs),
            collapsed=sum(found[3] for _, found in runs),
        )
        for place, runs in _on_the_same(gathered).items()
    }
    return grid, len(gathered) - len(grid)


def _epochs(result: Result) -> int:
    return len(result.record.errors.after_epoch)


def _on_the_same(gathered: _Runs) -> _Runs:
    ran = {
        place: frozenset((run.job.shift, run.job.seed) for run, _ in runs)
        for place, runs in gathered.items()
    }
    on = fullest(ran.values())
    return {
        place: [each for each in runs if (each[0].job.shift, each[0].job.seed) in on]
        for place, runs in gathered.items()
        if on <= ran[place]
    }
