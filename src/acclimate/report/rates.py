"""Learning rate × epoch: where it helps, and where it collapses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from acclimate.bench.record import Result
from acclimate.bench.selection import states_of
from acclimate.report.charts import Figure, Spec, heat_map
from acclimate.report.settings import (
    Found,
    Panel,
    Setting,
    fullest,
    mean_over_shifts,
    panel_words,
    setting_words,
)  # fmt: skip
from acclimate.table import Table, number_entry

__all__ = ["rate_figure", "rate_grid", "rate_groups", "rate_of"]

_COLUMNS, _ROWS = 8, 12
_FULL = 0.25
"""Of the error at the start: what differs by that much, or more, takes the full colour."""
_T = TypeVar("_T")
_SWEPT = ("optimizer.lr", "epochs")


def rate_words(rate: float) -> str:
    """A learning rate in few letters.

    >>> rate_words(0.01), rate_words(0.00075)
    ('0.01', '7.5e-4')
    """
    plain = f"{rate:g}"
    if len(plain) <= 5:
        return plain
    mantissa, _, exponent = f"{rate:.1e}".partition("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def rate_groups(panel: Panel, found: Found) -> list[tuple[str, list[Result]]]:
    """Runs that differ in learning rate and epochs alone, with a title; several rates each."""
    by_rest: dict[Setting, list[Result]] = {}
    for setting, results in found[panel].items():
        rest = tuple(pair for pair in setting.options if pair[0] not in _SWEPT)
        by_rest.setdefault(Setting(setting.recipe, rest), []).extend(results)
    name = panel_words(panel, found)
    return [
        (f"{setting_words(setting)}, {name}", results)
        for setting, results in by_rest.items()
        if len({rate_of(result) for result in results if _usable(result)}) > 1
    ]


def rate_figure(title: str, results: Sequence[Result]) -> Figure:
    """A heat map. A run of ten epochs has the errors after one to nine as well."""
    grid, unlike = rate_grid(results)
    rates = sorted({rate for rate, _ in grid})
    epochs = sorted({epoch for _, epoch in grid})
    shown, drawn = _some(epochs, _COLUMNS), _some(rates, _ROWS)
    worse = sum(mean.error > mean.unadapted for mean in grid.values())
    rows = [
        [number_entry(rate, text=f"{rate:g}"), number_entry(epoch, digits=0),
         *map(number_entry, (mean.error, mean.start, mean.unadapted)),
         number_entry(mean.runs, digits=0), number_entry(mean.collapsed, digits=0)]
        for (rate, epoch), mean in sorted(grid.items())
    ]  # fmt: skip
    left_out = len(rates) * len(epochs) - len(drawn) * len(shown)
    notes = [f"{left_out} of the places are not drawn, only listed."] if left_out else []
    if unlike:
        notes.append(f"{unlike} more are left out: they did not run on all that the others ran on.")
    return Figure(
        name="learning-rate-by-epoch",
        title=title,
        description="Mean top-1 error by learning rate and number of epochs, yellow where "
        "learning lowered it and purple where learning raised it. "
        f"{worse} of {len(grid)} are worse than unadapted.",
        spec=_drawn(grid, rates=drawn, epochs=shown),
        table=Table(
            name="learning-rate-by-epoch",
            title=f"{title}: top-1 error % by learning rate and epoch",
            header=["learning rate", "epochs", "error %", "start %", "unadapted %", "runs",
                    "collapsed"],
            rows=rows,
            notes=notes,
        ),
    )  # fmt: skip


def _some(values: Sequence[_T], most: int) -> list[_T]:
    """At most so many of the values, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    last = len(values) - 1
    places = dict.fromkeys(round(last * part / (most - 1)) for part in range(most))
    return [values[place] for place in places]


class _Mean(NamedTuple):
    """Of so many runs: after the epoch, of the source model, and with nothing learnt.

    Collapsed are those that predict fewer than half of the classes they predicted at the start.
    """

    error: float
    unadapted: float
    start: float
    runs: int
    collapsed: int


Grid: TypeAlias = Mapping[tuple[float, int], _Mean]
_Run: TypeAlias = tuple[str | None, int]
"""A shift and a seed."""
_Reached: TypeAlias = tuple[Result, float, float, float]
"""A run, its error after an epoch, of the source model, and with nothing learnt."""


def _drawn(grid: Grid, *, rates: Sequence[float], epochs: Sequence[int]) -> Spec:
    cells = [
        {
            "rate": rate_words(rate), "epochs": str(epoch), "error": round(mean.error, 2),
            "start": round(mean.start, 2), "unadapted": round(mean.unadapted, 2),
            "collapsed": f"{mean.collapsed} of {mean.runs}", "worse": mean.error > mean.unadapted,
            "words": f"{mean.error:.1f}{'†' if mean.collapsed else ''}",
        }
        for (rate, epoch), mean in sorted(grid.items())
        if rate in rates and epoch in epochs
    ]  # fmt: skip
    fallen = any(mean.collapsed for mean in grid.values())
    title = ["epochs", *(["† somewhere fewer than half of the classes in use"] if fallen else [])]
    # The same in all figures: a point that was lost must not look like the collapse of another.
    most = _FULL * max(mean.start for mean in grid.values()) or 1.0
    return heat_map(cells, most=most, title=title)


def rate_of(result: Result) -> float | None:
    """The learning rate of a run: as recorded in full, else as it was asked for."""
    asked = dict(result.job.options).get("optimizer.lr")
    rate = asked if result.record.rate is None else result.record.rate
    return float(rate) if isinstance(rate, int | float) and rate > 0 else None


def _usable(result: Result) -> bool:
    """Whether a run can stand in a grid."""
    scored = any(error is not None for error in result.record.errors.after_epoch)
    return scored and result.unadapted_error is not None and rate_of(result) is not None


def rate_grid(results: Sequence[Result]) -> tuple[Grid, int]:
    """Means over shifts and seeds; of runs that differ in their length alone the longest counts.

    All are of the same shifts and seeds; how many places were left out, not having all of these.
    """
    longest: dict[tuple[float, _Run], Result] = {}
    for result in results:
        rate, run = rate_of(result), (result.job.shift, result.job.seed)
        if rate is not None and _usable(result):
            longest[rate, run] = max(longest.get((rate, run), result), result, key=_epochs)
    reached: dict[tuple[float, int], dict[_Run, _Reached]] = {}
    for (rate, run), result in longest.items():
        source, start = result.unadapted_error, result.record.errors.start
        for epoch, error in enumerate(result.record.errors.after_epoch, 1):
            if error is not None and source is not None:
                began = source if start is None else start
                reached.setdefault((rate, epoch), {})[run] = (result, error, source, began)
    on = fullest(map(frozenset, reached.values()))
    grid = {}
    for place, by_run in reached.items():
        if by_run.keys() >= on:
            runs = [each for run, each in by_run.items() if run in on]
            results, *numbers = zip(*runs, strict=True)
            error, unadapted, start = (
                mean_over_shifts(zip(results, each, strict=True)) for each in numbers
            )
            collapsed = sum(states_of(result)[place[1]].collapsed for result in results)
            grid[place] = _Mean(error, unadapted, start, len(results), collapsed)
    return grid, len(reached) - len(grid)


def _epochs(result: Result) -> int:
    return len(result.record.errors.after_epoch)
