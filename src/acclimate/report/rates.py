"""Learning rate × epoch: where it helps, and where it collapses."""

from __future__ import annotations

from collections.abc import Sequence
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
)
from acclimate.table import Table, number_entry

__all__ = ["rate_figure", "rate_groups", "rate_of"]

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
        if len({rate_of(result) for result in results if usable(result)}) > 1
    ]


def rate_figure(title: str, results: Sequence[Result]) -> Figure:
    """A heat map. A run of ten epochs has the errors after one to nine as well."""
    grid, unlike = rate_grid(results)
    rates = sorted({rate for rate, _ in grid})
    epochs = sorted({epoch for _, epoch in grid})
    shown, drawn = _some(epochs, _COLUMNS), _some(rates, _ROWS)
    worse = sum(mean.error > mean.unadapted for mean in grid.values())
    rows = [
        [
            number_entry(rate, text=f"{rate:g}"),
            number_entry(epoch, digits=0),
            number_entry(grid[rate, epoch].error),
            number_entry(grid[rate, epoch].start),
            number_entry(grid[rate, epoch].unadapted),
            number_entry(grid[rate, epoch].runs, digits=0),
            number_entry(grid[rate, epoch].collapsed, digits=0),
        ]
        for rate in rates
        for epoch in epochs
        if (rate, epoch) in grid
    ]
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
        spec=_drawn(grid, drawn, shown),
        table=Table(
            name="learning-rate-by-epoch",
            title=f"{title}: top-1 error % by learning rate and epoch",
            header=[
                "learning rate",
                "epochs",
                "error %",
                "start %",
                "unadapted %",
                "runs",
                "collapsed",
            ],
            rows=rows,
            notes=notes,
        ),
    )


def _some(values: Sequence[_T], most: int) -> list[_T]:
    """At most so many of the values, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    last = len(values) - 1
    places = dict.fromkeys(round(last * part / (most - 1)) for part in range(most))
    return [values[place] for place in places]


def _drawn(grid: Grid, rates: Sequence[float], epochs: Sequence[int]) -> Spec:
    cells = [(rate, epoch) for rate in rates for epoch in epochs if (rate, epoch) in grid]
    rows = []
    for rate, epoch in cells:
        mean = grid[rate, epoch]
        rows.append({
            "rate": rate_words(rate), "epochs": str(epoch), "error": round(mean.error, 2),
            "start": round(mean.start, 2), "unadapted": round(mean.unadapted, 2),
            "collapsed": f"{mean.collapsed} of {mean.runs}", "worse": mean.error > mean.unadapted,
            "words": f"{mean.error:.1f}{'†' if mean.collapsed else ''}",
        })  # fmt: skip
    fallen = any(mean.collapsed for mean in grid.values())
    title = ["epochs", *(["† somewhere fewer than half of the classes in use"] if fallen else [])]
    # The same in all figures: a point that was lost must not look like the collapse of another.
    most = _FULL * max(mean.start for mean in grid.values()) or 1.0
    return heat_map(rows, most=most, title=title)


class _Mean(NamedTuple):
    """Of so many runs: after the epoch, of the source model, and with nothing learnt.

    Collapsed are those that predict fewer than half of the classes they predicted at the start.
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


def _epochs(result: Result) -> int:
    return len(result.record.errors.after_epoch)
