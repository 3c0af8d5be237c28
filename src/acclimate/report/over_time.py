"""What happens over the epochs, or along a stream: the error, and the balance of classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import floor
from typing import TypeAlias

from acclimate.bench.choices import Choices
from acclimate.bench.record import Result
from acclimate.report.charts import Curve, Figure, Spec, axis, lines, padded
from acclimate.report.settings import (
    Found,
    Panel,
    choose,
    looks,
    mean_error,
    mean_over_shifts,
    panel_words,
    setting_words,
    side_by_side,
)
from acclimate.text import counted

__all__ = ["balance_figure", "error_figure"]

_Values: TypeAlias = Callable[[Result], Sequence[float | None]]

_ERROR, _LARGEST = "top-1 error %", "most frequent prediction %"


def error_figure(panel: Panel, found: Found, *, choices: Sequence[Choices] = ()) -> Figure | None:
    """The error after each epoch (epoch 0: statistics alone), and before updates during it.

    Of a stream: of the predictions in each part of it, each made before its update.
    """
    if panel.order:
        curves = _along(panel, found, choices, "error", scale=1.0)
        if not curves:
            return None
        return lines(
            curves,
            looks(found),
            name="error-over-stream",
            title=panel_words(panel, found),
            description="Mean top-1 error of the online predictions by part of the stream, from "
            f"{_span(curves)} percent.",
            x=_SHARE,
            y=axis(_ERROR, *padded(_heights(curves), least=0.0)),
        )
    shown, left_out = side_by_side(panel, found, choices=choices)
    curves, flat, notes = [], [], []
    for chosen in shown:
        name, recipe = setting_words(chosen.setting), chosen.setting.recipe
        after = _means(chosen.results, _from_the_start)
        online = _means(chosen.results, lambda r: r.record.errors.before_update)
        if not _known(enumerate(after[1:])):
            one = _of_each_batch(chosen.results)
            flat += [] if one is None else [(name, recipe, one)]
            continue
        curves.append(Curve(name, recipe, _known(enumerate(after))))
        # An epoch's online predictions are made between the epoch before it and its end.
        points = _known((epoch - 0.5, error) for epoch, error in enumerate(online, 1))
        if points:
            curves.append(Curve(name, recipe, points, online=True))
        notes.append(f"{name}: {chosen.why}; {counted(len(chosen.results), 'result')}.")
    if not curves:
        return None
    last, values = _last(curves), _heights(curves)
    # A line far off would press all others together; its name has its error instead.
    far = max(values) + 2 * max(max(values) - min(values), 1.0)
    level = [
        Curve(name if error <= far else f"{name}: {error:.1f}, off the top", recipe,
              [(0, error), (last, error)])
        for name, recipe, error in flat
    ]  # fmt: skip
    near = [error for *_, error in flat if error <= far]
    return lines(
        [*level, *curves],
        looks(found),
        name="error-over-epochs",
        title=panel_words(panel, found),
        description="Mean top-1 error by epoch: solid after the epoch, dotted the online "
        f"predictions, made before each update, from {_span(curves)} percent.",
        x=_epochs(last),
        y=axis(_ERROR, *padded([*values, *near], least=0.0)),
        notes=[*notes, *left_out],
    )


def balance_figure(panel: Panel, found: Found, *, choices: Sequence[Choices] = ()) -> Figure | None:
    """How frequent the most frequent prediction is: over the epochs, or along a stream.

    A collapse drives it up.
    """
    notes: list[str] = []
    if panel.order:
        curves = _along(panel, found, choices, "largest", scale=100.0)
    else:
        shown, left_out = side_by_side(panel, found, choices=choices)
        curves = []
        for chosen in shown:
            largest = _means(chosen.results, _largest)
            if not _known(enumerate(largest[1:])):
                continue
            name = setting_words(chosen.setting)
            points = [(epoch, 100 * share) for epoch, share in _known(enumerate(largest))]
            curves.append(Curve(name, chosen.setting.recipe, points))
            unused = _means(chosen.results, lambda r: [each.unused for each in r.record.balance])
            if unused[-1] is not None:
                notes.append(f"{name}: {unused[-1]:.1f} classes are never predicted in the end.")
        notes += left_out
    if not curves:
        return None
    by = "part of the stream" if panel.order else "epoch"
    return lines(
        curves,
        looks(found),
        name="class-balance-over-stream" if panel.order else "class-balance",
        title=panel_words(panel, found),
        description=f"Share of the images that get the most frequent prediction, by {by}, from "
        f"{_span(curves)} percent.",
        x=_SHARE if panel.order else _epochs(_last(curves)),
        y=axis(_LARGEST, 0, min(100, 1.15 * max(_heights(curves)))),
        notes=notes,
    )


_SHARE = axis("images met, % of the stream", 0, 102, values=range(0, 101, 20))


def _epochs(last: float) -> Spec:
    whole = max(1, floor(last))
    ticks = range(0, whole + 1, max(1, -(-whole // 8)))
    return axis("epoch", -0.02 * whole, whole * 1.02, values=ticks)


def _along(
    panel: Panel, found: Found, choices: Sequence[Choices], value: str, *, scale: float
) -> list[Curve]:
    """A value in each part of a stream."""

    def parts(result: Result) -> Sequence[float | None]:
        return [getattr(span, value) for span in result.record.spans]

    curves = []
    for chosen in choose(panel, found, choices=choices):
        means = _means(chosen.results, parts)
        known = _known((100 * part / len(means), mean) for part, mean in enumerate(means, 1))
        points = [(share, scale * mean) for share, mean in known]
        if points:
            curves.append(Curve(setting_words(chosen.setting), chosen.setting.recipe, points))
    return curves


def _heights(curves: Sequence[Curve]) -> list[float]:
    return [height for curve in curves for _, height in curve.points]


def _last(curves: Sequence[Curve]) -> float:
    return max(at for curve in curves for at, _ in curve.points)


def _span(curves: Sequence[Curve]) -> str:
    return f"{min(_heights(curves)):.1f} to {max(_heights(curves)):.1f}"


def _of_each_batch(results: Sequence[Result]) -> float | None:
    """The error of what learns nothing, with the statistics that curves have: of each batch."""
    online = _mean([(result, result.online_error) for result in results])
    return mean_error(results) if online is None else online


def _from_the_start(result: Result) -> Sequence[float | None]:
    return [result.record.errors.start, *result.record.errors.after_epoch]


def _largest(result: Result) -> Sequence[float | None]:
    record = result.record
    return [each.largest for each in (record.start_balance, *record.balance)]


def _means(results: Sequence[Result], values: _Values) -> list[float | None]:
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
