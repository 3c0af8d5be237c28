"""What happens in a stream, part by part: the online error, and the balance of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from acclimate.bench.choices import Choices
from acclimate.bench.record import Result
from acclimate.report.axes import Axis
from acclimate.report.figure import Curve, ReportFigure, curves_figure, padded
from acclimate.report.looks import looks
from acclimate.report.over_time import known, means
from acclimate.report.settings import Panel, Setting, panel_words, setting_words
from acclimate.report.shown import choose

__all__ = ["stream_balance_figure", "stream_error_figure"]

_Found = Mapping[Panel, Mapping[Setting, Sequence[Result]]]


def stream_error_figure(
    panel: Panel, found: _Found, *, choices: Sequence[Choices] = ()
) -> ReportFigure | None:
    """The error of the answers in each part of a stream, each made before its update."""
    curves = _curves(panel, found, choices, "error", scale=1.0)
    if not curves:
        return None
    values = [point[1] for curve in curves for point in curve.points]
    low, high = padded(values, least=0.0)
    return curves_figure(
        curves,
        looks(found),
        name="error-over-stream",
        title=panel_words(panel, found),
        description=(
            "Mean top-1 error of the online predictions by part of the stream, from "
            f"{min(values):.1f} to {max(values):.1f} percent."
        ),
        x=_SHARE,
        y=Axis(label="top-1 error %", low=low, high=high),
    )


def stream_balance_figure(
    panel: Panel, found: _Found, *, choices: Sequence[Choices] = ()
) -> ReportFigure | None:
    """How often the most frequent answer is given in each part of a stream."""
    curves = _curves(panel, found, choices, "largest", scale=100.0)
    if not curves:
        return None
    values = [point[1] for curve in curves for point in curve.points]
    return curves_figure(
        curves,
        looks(found),
        name="class-balance-over-stream",
        title=panel_words(panel, found),
        description=(
            "Share of the images that get the most frequent answer, by part of the stream, from "
            f"{min(values):.1f} to {max(values):.1f} percent."
        ),
        x=_SHARE,
        y=Axis(label="most frequent answer %", low=0, high=min(100, 1.15 * max(values))),
    )


_SHARE = Axis(
    label="images met, % of the stream",
    low=0,
    high=102,
    marks=tuple((float(n), str(n)) for n in range(0, 101, 20)),
)


def _curves(
    panel: Panel, found: _Found, choices: Sequence[Choices], value: str, *, scale: float
) -> list[Curve]:
    curves = []
    for chosen in choose(panel, found, choices=choices):
        parts = means(chosen.results, partial(_spans, value=value))
        shares = known((100 * part / len(parts), mean) for part, mean in enumerate(parts, 1))
        if shares:
            points = [(share, scale * mean) for share, mean in shares]
            name, recipe = setting_words(chosen.setting), chosen.setting.recipe
            curves.append(Curve(name=name, recipe=recipe, points=points))
    return curves


def _spans(result: Result, *, value: str) -> Sequence[float | None]:
    return [getattr(span, value) for span in result.record.spans]
