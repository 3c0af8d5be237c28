"""What happens over the epochs: the error before updates and after, and the balance of classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor

from acclimate.bench.choices import Choices
from acclimate.bench.record import Result
from acclimate.report.axes import Axis
from acclimate.report.figure import Curve, ReportFigure, curves_figure, padded
from acclimate.report.looks import looks
from acclimate.report.means import mean_error, mean_over_shifts
from acclimate.report.settings import Panel, Setting, panel_words, setting_words
from acclimate.report.shown import side_by_side
from acclimate.text import counted

__all__ = ["balance_figure", "error_figure", "known", "means"]

_Found = Mapping[Panel, Mapping[Setting, Sequence[Result]]]


def error_figure(
    panel: Panel, found: _Found, *, choices: Sequence[Choices] = ()
) -> ReportFigure | None:
    """The error after each epoch (epoch 0: statistics alone), and before updates during it."""
    shown, left_out = side_by_side(panel, found, choices=choices)
    curves, flat, notes = [], [], []
    for chosen in shown:
        name, recipe = setting_words(chosen.setting), chosen.setting.recipe
        after = means(chosen.results, _from_the_start)
        online = means(chosen.results, lambda r: r.record.errors.before_update)
        if not known(enumerate(after[1:])):
            one = _as_it_comes(chosen.results)
            flat += [] if one is None else [(name, recipe, one)]
            continue
        points = known(enumerate(after))
        curves.append(Curve(name=name, recipe=recipe, points=points))
        # An epoch's online predictions are made on the way from the epoch before it.
        points = known((epoch - 0.5, error) for epoch, error in enumerate(online, 1))
        if points:
            curves.append(Curve(name=name, recipe=recipe, points=points, second=True))
        notes.append(f"{name}: {chosen.why}; {counted(len(chosen.results), 'result')}.")
    if not curves:
        return None
    last = max(point[0] for curve in curves for point in curve.points)
    values = [point[1] for curve in curves for point in curve.points]
    lines, near = _flat_lines(flat, values, last)
    curves = [*lines, *curves]
    low, high = padded([*values, *near], least=0.0)
    return curves_figure(
        curves,
        looks(found),
        name="error-over-epochs",
        title=panel_words(panel, found),
        description=(
            "Mean top-1 error by epoch: solid after the epoch, dashed the online predictions, made "
            f"before each update, from {min(values):.1f} to {max(values):.1f} percent."
        ),
        x=_epochs(last),
        y=Axis(label="top-1 error %", low=low, high=high),
        notes=[*notes, *left_out],
    )


def balance_figure(
    panel: Panel, found: _Found, *, choices: Sequence[Choices] = ()
) -> ReportFigure | None:
    """How often the most frequent answer is given, at the start and after each epoch.

    A collapse drives it up.
    """
    shown, left_out = side_by_side(panel, found, choices=choices)
    curves, notes = [], []
    for chosen in shown:
        largest = means(chosen.results, _largest)
        if known(enumerate(largest[1:])):
            name = setting_words(chosen.setting)
            points = [(epoch, 100 * share) for epoch, share in known(enumerate(largest))]
            curves.append(Curve(name=name, recipe=chosen.setting.recipe, points=points))
            unused = means(chosen.results, lambda r: [each.unused for each in r.record.balance])
            if unused[-1] is not None:
                notes.append(f"{name}: {unused[-1]:.1f} classes are never answered in the end.")
    if not curves:
        return None
    values = [point[1] for curve in curves for point in curve.points]
    return curves_figure(
        curves,
        looks(found),
        name="class-balance",
        title=panel_words(panel, found),
        description=(
            "Share of the images that get the most frequent answer, by epoch, from "
            f"{min(values):.1f} to {max(values):.1f} percent."
        ),
        x=_epochs(max(point[0] for curve in curves for point in curve.points)),
        y=Axis(label="most frequent answer %", low=0, high=min(100, 1.15 * max(values))),
        notes=[*notes, *left_out],
    )


def _as_it_comes(results: Sequence[Result]) -> float | None:
    """The error of what learns nothing, with the statistics that curves have: of each batch."""
    online = [(result, result.online_error) for result in results]
    return mean_error(results) if (found := _mean(online)) is None else found


def _flat_lines(
    flat: Sequence[tuple[str, str, float]], values: Sequence[float], last: float
) -> tuple[list[Curve], list[float]]:
    """Lines of what has no epochs, and the errors of those the axis is to reach.

    One far off would press all others together; its name has its error instead.
    """
    far = max(values) + 2 * max(max(values) - min(values), 1.0)
    lines = [
        Curve(
            name=name if error <= far else f"{name}: {error:.1f}, off the top",
            recipe=recipe,
            points=[(0, error), (last, error)],
        )
        for name, recipe, error in flat
    ]
    return lines, [error for *_, error in flat if error <= far]


def _epochs(last: float) -> Axis:
    whole = max(1, floor(last))
    step = max(1, -(-whole // 8))
    marks = tuple((float(n), str(n)) for n in range(0, whole + 1, step))
    return Axis(label="epoch", low=-0.02 * whole, high=whole * 1.02, marks=marks)


def _from_the_start(result: Result) -> Sequence[float | None]:
    return [result.record.errors.start, *result.record.errors.after_epoch]


def _largest(result: Result) -> Sequence[float | None]:
    record = result.record
    return [each.largest for each in (record.start_balance, *record.balance)]


def means(
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


def known(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """The points at which there is something."""
    return [(at, value) for at, value in points if value is not None]
