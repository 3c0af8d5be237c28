"""What a panel shows: error by corruption, over time, by learning rate; calibration, balance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import NamedTuple, TypeAlias, TypeVar

from acclimate.bench.job import UNADAPTED
from acclimate.bench.record import Result
from acclimate.bench.selection import states_of
from acclimate.bench.table import ordered
from acclimate.metrics.mean import mean
from acclimate.report import charts
from acclimate.report.charts import MANY, Curve, Figure, Look, Spec, axis, lines, padded
from acclimate.report.settings import (
    Found,
    Panel,
    Setting,
    View,
    fullest,
    mean_error,
    mean_over_shifts,
    panel_words,
    setting_words,
)
from acclimate.table import Table, number_entry

__all__ = [
    "balance_figure", "dumbbell_figure", "error_figure", "errors_by_shift", "pooled", "rate_figure",
    "rate_grid", "rate_groups", "rate_of", "reliability_figure", "shifts_in_order",
]  # fmt: skip


def errors_by_shift(view: View) -> dict[str, dict[str, float]]:
    """The mean error of the unadapted model and of each setting, by corruption."""
    found = {"unadapted": _unadapted([r for shown in view.alike for r in shown.results])}
    found |= {
        shown.name: _by_shift(shown.results)
        for shown in view.alike
        if shown.setting.recipe != UNADAPTED
    }
    return {name: errors for name, errors in found.items() if errors}


def shifts_in_order(series: Mapping[str, Mapping[str, float]]) -> list[str]:
    """All corruptions of some series, in the paper's order."""
    keys = {(None if name == "clean" else name,) for errors in series.values() for name in errors}
    return [key[0] or "clean" for key in ordered(["corruption"], keys)]


def dumbbell_figure(view: View) -> Figure | None:
    """The unadapted error and that of each recipe, corruption by corruption.

    Dots for a few recipes, a cell for each of many.
    """
    adapted = [shown for shown in view.alike if shown.setting.recipe != UNADAPTED]
    drawn = {"unadapted": view.looks[UNADAPTED]}
    drawn |= {shown.name: view.looks[shown.setting.recipe] for shown in adapted}
    series = errors_by_shift(view)
    shifts = shifts_in_order(series)
    if not shifts:
        return None
    means = [f"{name} {mean(list(errors.values())):.1f} percent" for name, errors in series.items()]
    return Figure(
        name="error-by-corruption",
        title=view.title,
        description=f"Mean over these corruptions: {', '.join(means)}.",
        spec=_dumbbells(series, drawn, shifts) if len(series) <= MANY else _cells(series, shifts),
        wide=len(series) > MANY,
        table=Table(
            name="error-by-corruption",
            title=f"{view.title}: mean top-1 error % by corruption",
            header=["corruption", *series],
            rows=[[s, *(number_entry(series[n].get(s)) for n in series)] for s in shifts],
            notes=[*(shown.note for shown in adapted), *view.left_out],
        ),
    )


def _dumbbells(
    series: Mapping[str, Mapping[str, float]], looks: Mapping[str, Look], rows: Sequence[str]
) -> Spec:
    """A dot for each series in each of the rows."""
    values: list[Spec] = [
        {"line": name, "row": row, "value": round(errors[row], 3)}
        for row in rows
        for name, errors in series.items()
        if row in errors
    ]
    x = axis("top-1 error %", *padded([each["value"] for each in values], least=0.0))
    of = charts.by_line({name: looks[name] for name in series})
    y = {"field": "row", "type": "nominal", "title": None, "sort": None,
         "scale": {"paddingInner": 0.35, "paddingOuter": 0.2},
         "axis": {"labelLimit": 120, "grid": False}}  # fmt: skip
    tooltip = [
        {"field": "row", "title": "corruption"},
        {"field": "line", "title": "recipe"},
        {"field": "value", "title": "error %", "format": ".1f"},
    ]
    ends = [{"op": op, "field": "value", "as": op} for op in ("min", "max")]
    return {
        "width": "container",
        "height": max(24, 5 * len(series)) * len(rows),
        "data": {"values": values},
        "encoding": {"y": y},
        "layer": [
            {"transform": [{"aggregate": ends, "groupby": ["row"]}],
             "mark": {"type": "rule", "color": charts.GREY, "opacity": 0.4, "strokeWidth": 3},
             "encoding": {"x": {"field": "min", **x}, "x2": {"field": "max"}}},
            # A little apart: of two with the same error the one below would not be seen.
            {"params": [charts.CLICKED], "mark": {"type": "point", "filled": True, "size": 75},
             "encoding": {"x": {"field": "value", **x},
                          "yOffset": {"field": "line", "type": "nominal", "sort": list(series)},
                          "color": of["color"], "shape": of["shape"], "opacity": charts.FADED,
                          "tooltip": tooltip}},
        ],
    }  # fmt: skip


def _cells(series: Mapping[str, Mapping[str, float]], shifts: Sequence[str]) -> Spec:
    """A row for each series, the best on top, and a column for each corruption."""
    source = series.get("unadapted", {})
    order = sorted(series, key=lambda name: mean(list(series[name].values())))
    values: list[Spec] = [
        {"line": name.partition(" (")[0], "shift": shift.replace("_", " "),
         "error": round(errors[shift], 2), "words": f"{errors[shift]:.0f}",
         "gain": round(source.get(shift, errors[shift]) - errors[shift], 2)}
        for name in order
        for errors in [series[name]]
        for shift in shifts
        if shift in errors
    ]  # fmt: skip
    most = max([abs(each["gain"]) for each in values]) or 1.0
    tooltip = {
        "line": "recipe",
        "shift": "corruption",
        "error": "error %",
        "gain": "below unadapted",
    }
    fill, words = _gains(most, tooltip)
    return {
        "width": "container",
        "height": 22 * len(order),
        "data": {"values": values},
        "encoding": {
            "x": {"field": "shift", "type": "nominal", "sort": None, "title": None,
                  "axis": {"labelAngle": -40, "orient": "top", "labelOverlap": False}},
            "y": {"field": "line", "type": "nominal", "sort": None, "title": None,
                  "axis": {"labelLimit": 210}},
        },
        "layer": [
            fill,
            words,
        ],
    }  # fmt: skip


def _gains(most: float, tooltip: Mapping[str, str]) -> tuple[Spec, Spec]:
    """Two layers of a table of cells: coloured by what was gained, and the words upon that."""
    scale = {"domain": [-most, -most / 2, 0, most / 2, most], "range": list(charts.CHANGE),
             "interpolate": "rgb", "clamp": True}  # fmt: skip
    fill: Spec = {
        "mark": "rect",
        "encoding": {
            "fill": {"field": "gain", "type": "quantitative", "scale": scale, "legend": None},
            "tooltip": [{"field": f, "title": t} for f, t in tooltip.items()],
        },
    }
    on_dark = {"test": f"datum.gain < {-0.6 * most}", "value": "#ffffff"}
    words: Spec = {
        "mark": {"type": "text", "fontSize": 11},
        "encoding": {
            "text": {"field": "words"},
            "color": {"condition": on_dark, "value": "#222222"},
        },
    }
    return fill, words


def _by_shift(results: Sequence[Result]) -> dict[str, float]:
    """The mean over severities and seeds, by corruption."""
    found: dict[str, list[tuple[Result, float]]] = {}
    for result in results:
        for name, error in _met(result):
            found.setdefault(name, []).append((result, error))
    return {name: mean_over_shifts(each) for name, each in found.items()}


def _met(result: Result) -> list[tuple[str, float]]:
    """The error on each corruption: a stream through several has met them all."""
    parts = result.record.by_shift
    if len(parts) < 2:
        return [] if result.error is None else [(result.corruption or "clean", result.error)]
    known = {name: [e for e in errors if e is not None] for name, errors in parts.items()}
    return [(name, mean(errors)) for name, errors in known.items() if errors]


def _unadapted(results: Sequence[Result]) -> dict[str, float]:
    """The same of the source model, which results of a shift have measured again."""
    once: dict[str, dict[int | None, float]] = {}
    # The recipe none last: passes of others may be in bfloat16.
    for result in sorted(results, key=lambda each: each.job.recipe == UNADAPTED):
        before = []
        if result.job.recipe == UNADAPTED:  # a stream has no source model beside it: this tells
            before = _met(result)
        elif result.unadapted_error is not None:
            before = [(result.corruption or "clean", result.unadapted_error)]
        for name, error in before:
            once.setdefault(name, {})[result.job.severity] = error
    return {name: mean(list(errors.values())) for name, errors in once.items()}


_ERROR = "top-1 error %"
_SHARE = axis("images met, % of the stream", 0, 102, values=range(0, 101, 20))


def error_figure(view: View) -> Figure | None:
    """The error after each epoch (epoch 0: statistics alone), and before updates during it.

    Of a stream: of the predictions in each part of it, each made before its update.
    """
    if view.panel.order:
        curves = _along(view, "error", scale=1.0)
        words = "Mean top-1 error of the online predictions by part of the stream"
        return _over_time(view, curves, name="error-over-stream", words=words)
    curves, flat, notes = [], [], []
    for shown in view.alike:
        name, recipe = shown.name, shown.setting.recipe
        after = _means(
            shown.results, lambda r: [r.record.errors.start, *r.record.errors.after_epoch]
        )
        online = _means(shown.results, lambda r: r.record.errors.before_update)
        if not _known(enumerate(after[1:])):
            # What learns nothing, with the statistics that curves have: of each batch.
            error = _mean([(result, result.online_error) for result in shown.results])
            error = mean_error(shown.results) if error is None else error
            flat += [] if error is None else [(name, recipe, error)]
            continue
        curves.append(Curve(name, recipe, _known(enumerate(after))))
        # An epoch's online predictions are made between the epoch before it and its end.
        points = _known((epoch - 0.5, error) for epoch, error in enumerate(online, 1))
        curves += [Curve(name, recipe, points, online=True)] if points else []
        notes.append(shown.note)
    words = "Mean top-1 error by epoch: solid after the epoch, dotted the online predictions, made "
    words += "before each update"
    name = "error-over-epochs"
    return _over_time(view, curves, name=name, words=words, flat=flat, notes=notes)


def balance_figure(view: View) -> Figure | None:
    """How frequent the most frequent prediction is: over the epochs, or along a stream.

    A collapse drives it up.
    """
    words = "Share of the images that get the most frequent prediction, by"
    if view.panel.order:
        curves = _along(view, "largest", scale=100.0)
        name = "class-balance-over-stream"
        return _over_time(view, curves, name=name, words=f"{words} part of the stream", share=True)
    curves, notes = [], []
    for shown in view.alike:
        largest = _means(shown.results, lambda r: [
            each.largest for each in (r.record.start_balance, *r.record.balance)
        ])  # fmt: skip
        if not _known(enumerate(largest[1:])):
            continue
        points = [(epoch, 100 * share) for epoch, share in _known(enumerate(largest))]
        curves.append(Curve(shown.name, shown.setting.recipe, points))
        unused = _means(shown.results, lambda r: [each.unused for each in r.record.balance])
        if unused[-1] is not None:
            notes.append(f"{shown.name}: {unused[-1]:.1f} classes are never predicted in the end.")
    name = "class-balance"
    return _over_time(view, curves, name=name, words=f"{words} epoch", notes=notes, share=True)


def _over_time(
    view: View,
    curves: Sequence[Curve],
    *,
    name: str,
    words: str,
    flat: Sequence[tuple[str, str, float]] = (),
    notes: Sequence[str] = (),
    share: bool = False,
) -> Figure | None:
    """Curves by epoch or by part of a stream; ``flat`` are the errors of what learns nothing."""
    if not curves:
        return None
    heights = [height for curve in curves for _, height in curve.points]
    low, high, last = (
        min(heights),
        max(heights),
        max(x for curve in curves for x, _ in curve.points),
    )
    # A line far off would press all others together; its name has its error instead.
    far = high + 2 * max(high - low, 1.0)
    level = [
        Curve(name if error <= far else f"{name}: {error:.1f}, off the top", recipe,
              [(0, error), (last, error)])
        for name, recipe, error in flat
    ]  # fmt: skip
    near = [error for *_, error in flat if error <= far]
    y = axis(_ERROR, *padded([*heights, *near], least=0.0))
    if share:
        y = axis("most frequent prediction %", 0, min(100, 1.15 * high))
    return lines(
        [*level, *curves],
        view.looks,
        name=name,
        title=view.title,
        description=f"{words}, from {low:.1f} to {high:.1f} percent.",
        x=_SHARE if view.panel.order else _epoch_axis(last),
        y=y,
        notes=[] if view.panel.order else [*notes, *view.left_out],
    )


def _epoch_axis(last: float) -> Spec:
    whole = max(1, floor(last))
    ticks = range(0, whole + 1, max(1, -(-whole // 8)))
    return axis("epoch", -0.02 * whole, whole * 1.02, values=ticks)


def _along(view: View, value: str, *, scale: float) -> list[Curve]:
    """A value in each part of a stream."""
    curves = []
    for shown in view.chosen:
        means = _means(shown.results, lambda r: [getattr(span, value) for span in r.record.spans])
        known = _known((100 * part / len(means), mean) for part, mean in enumerate(means, 1))
        points = [(share, scale * mean) for share, mean in known]
        curves += [Curve(shown.name, shown.setting.recipe, points)] if points else []
    return curves


def _means(
    results: Sequence[Result], values: Callable[[Result], Sequence[float | None]]
) -> list[float | None]:
    """The mean at each place, of the results that go as far as any; None where one has nothing.

    Of some of them it would be of other images than the mean at the next place.
    """
    rows = [(result, values(result)) for result in results]
    longest = max((len(row) for _, row in rows), default=0)
    whole = [(result, row) for result, row in rows if len(row) == longest]
    return [_mean([(result, row[place]) for result, row in whole]) for place in range(longest)]


def _mean(numbers: Sequence[tuple[Result, float | None]]) -> float | None:
    there = [(result, number) for result, number in numbers if number is not None]
    return mean_over_shifts(there) if len(there) == len(numbers) else None


def _known(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """The points at which there is something."""
    return [(at, value) for at, value in points if value is not None]


_DRAWN = 0.001
"""Of all images, that a bin must hold for its accuracy to be more than chance."""
_SHARES = range(0, 101, 20)


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """The curve over all images of several results, and the calibration error of that curve."""

    points: Sequence[tuple[float, float]]
    ece: float
    images: int


def pooled(results: Sequence[Result]) -> Pooled | None:
    """The reliability curves of results as one: bins add up by their counts.

    >>> from acclimate.bench import Job
    >>> job = Job(model="m", dataset="d", recipe="none")
    >>> bins = [{"low": 0.5, "high": 1.0, "count": 4, "confidence": 0.9, "accuracy": 0.5}]
    >>> curve = pooled([Result(job=job, record={"reliability": bins})])
    >>> curve.points, round(curve.ece, 3), curve.images
    ([(0.9, 0.5)], 0.4, 4)
    """
    sums: dict[float, list[float]] = {}
    for bin_ in (each for result in results for each in result.record.reliability if each["count"]):
        count, total = bin_["count"], sums.setdefault(bin_["low"], [0.0, 0.0, 0.0])
        for place, share in enumerate((1, bin_["confidence"], bin_["accuracy"])):
            total[place] += count * share
    if not sums:
        return None
    bins = [sums[low] for low in sorted(sums)]
    images = sum(count for count, *_ in sums.values())
    return Pooled(
        points=[
            (confidence / n, right / n) for n, confidence, right in bins if n >= _DRAWN * images
        ],
        ece=sum(abs(confidence - right) for _, confidence, right in sums.values()) / images,
        images=int(images),
    )


def reliability_figure(view: View) -> Figure | None:
    """A curve for each recipe; on the diagonal a model is as often right as it says."""
    curves, notes = [], []
    for shown in view.alike:
        curve = pooled(shown.results)
        if curve is not None:
            recipe = shown.setting.recipe
            name = f"{recipe}: ECE {curve.ece:.3f}{shown.name.removeprefix(recipe)}"
            points = [(100 * confidence, 100 * right) for confidence, right in curve.points]
            curves.append(Curve(name, recipe, points))
            notes.append(f"{recipe}: {curve.images:,} images pooled over corruptions and seeds.")
    if not curves:
        return None
    errors = "; ".join(curve.name for curve in curves)
    return lines(
        curves,
        view.looks,
        name="reliability",
        title=view.title,
        description=f"Accuracy by confidence. Calibration errors: {errors}.",
        x=axis("confidence %", 0, 102, values=_SHARES),
        y=axis("accuracy %", 0, 102, values=_SHARES),
        notes=[*notes, *view.left_out],
        diagonal=102,
    )


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
        spec=_heat_map(grid, rates=drawn, epochs=shown),
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


def _heat_map(grid: Grid, *, rates: Sequence[float], epochs: Sequence[int]) -> Spec:
    """Some cells of a grid, the highest rate on top; colour follows the gain."""
    cells: list[Spec] = [
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
    order = sorted({cell["epochs"] for cell in cells}, key=int)
    place = {
        "x": {"field": "epochs", "type": "ordinal", "sort": order, "title": title,
              "axis": {"labelAngle": 0}},
        "y": {"field": "rate", "type": "ordinal", "sort": None, "title": "learning rate"},
    }  # fmt: skip
    tooltip = {"rate": "learning rate", "epochs": "epoch", "error": "error %", "start": "start %",
            "unadapted": "unadapted %", "collapsed": "collapsed"}  # fmt: skip
    fill, words = _gains(most, tooltip)
    frame: Spec = {
        "transform": [{"filter": "datum.worse"}],
        "mark": {"type": "rect", "fill": None, "strokeWidth": 2},
        "encoding": {"stroke": {"datum": "worse than the unadapted model", "type": "nominal",
                                "scale": {"range": ["#c2185b"]}}},
    }  # fmt: skip
    return {
        "width": "container",
        "height": 34 * len({cell["rate"] for cell in cells}),
        "data": {"values": cells[::-1]},
        "transform": [{"calculate": "datum.start - datum.error", "as": "gain"}],
        "encoding": place,
        "layer": [
            fill,
            *([frame] if any(cell["worse"] for cell in cells) else []),
            words,
        ],
    }  # fmt: skip


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
            best = longest.setdefault((rate, run), result)
            if len(result.record.errors.after_epoch) > len(best.record.errors.after_epoch):
                longest[rate, run] = result
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
