"""What happens over the epochs, or along a stream: the error, and the balance of classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import floor

from acclimate.bench.record import Result
from acclimate.report.charts import Curve, Figure, Spec, axis, lines, padded
from acclimate.report.settings import View, mean_error, mean_over_shifts

__all__ = ["balance_figure", "error_figure"]

_ERROR = "top-1 error %"
_SHARE = axis("images met, % of the stream", 0, 102, values=range(0, 101, 20))


def error_figure(view: View) -> Figure | None:
    """The error after each epoch (epoch 0: statistics alone), and before updates during it.

    Of a stream: of the predictions in each part of it, each made before its update.
    """
    if view.panel.order:
        curves = _along(view, "error", scale=1.0)
        if not curves:
            return None
        return lines(
            curves,
            view.looks,
            name="error-over-stream",
            title=view.title,
            description="Mean top-1 error of the online predictions by part of the stream, from "
            f"{_span(curves)} percent.",
            x=_SHARE,
            y=axis(_ERROR, *padded(_heights(curves), least=0.0)),
        )
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
    if not curves:
        return None
    last, heights = _last(curves), _heights(curves)
    # A line far off would press all others together; its name has its error instead.
    far = max(heights) + 2 * max(max(heights) - min(heights), 1.0)
    level = [
        Curve(name if error <= far else f"{name}: {error:.1f}, off the top", recipe,
              [(0, error), (last, error)])
        for name, recipe, error in flat
    ]  # fmt: skip
    near = [error for *_, error in flat if error <= far]
    return lines(
        [*level, *curves],
        view.looks,
        name="error-over-epochs",
        title=view.title,
        description="Mean top-1 error by epoch: solid after the epoch, dotted the online "
        f"predictions, made before each update, from {_span(curves)} percent.",
        x=_epochs(last),
        y=axis(_ERROR, *padded([*heights, *near], least=0.0)),
        notes=[*notes, *view.left_out],
    )


def balance_figure(view: View) -> Figure | None:
    """How frequent the most frequent prediction is: over the epochs, or along a stream.

    A collapse drives it up.
    """
    stream = bool(view.panel.order)
    curves, notes = _along(view, "largest", scale=100.0) if stream else [], list[str]()
    for shown in () if stream else view.alike:
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
    if not curves:
        return None
    by = "part of the stream" if stream else "epoch"
    return lines(
        curves,
        view.looks,
        name="class-balance-over-stream" if stream else "class-balance",
        title=view.title,
        description=f"Share of the images that get the most frequent prediction, by {by}, from "
        f"{_span(curves)} percent.",
        x=_SHARE if stream else _epochs(_last(curves)),
        y=axis("most frequent prediction %", 0, min(100, 1.15 * max(_heights(curves)))),
        notes=notes if stream else [*notes, *view.left_out],
    )


def _epochs(last: float) -> Spec:
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


def _heights(curves: Sequence[Curve]) -> list[float]:
    return [height for curve in curves for _, height in curve.points]


def _last(curves: Sequence[Curve]) -> float:
    return max(at for curve in curves for at, _ in curve.points)


def _span(curves: Sequence[Curve]) -> str:
    return f"{min(_heights(curves)):.1f} to {max(_heights(curves)):.1f}"


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
