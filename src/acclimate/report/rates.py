"""Learning rate × epoch: where it helps, and where it collapses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from acclimate.bench.record import Result
from acclimate.report.axes import Axis, Frame, axes, inside
from acclimate.report.colours import CHANGE
from acclimate.report.figure import TOP, WIDTH, ReportFigure, finished
from acclimate.report.marks import cells
from acclimate.report.rate_grid import Grid, rate_grid, rate_of, usable
from acclimate.report.settings import Panel, Setting, panel_words, setting_words
from acclimate.report.svg import element, group, text
from acclimate.table import Table, number_entry

__all__ = ["rate_figure", "rate_groups"]

_LEFT, _ROW, _COLUMNS, _ROWS = 70, 34, 8, 12
_WORSE = "#c2185b"
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


def rate_groups(
    panel: Panel, found: Mapping[Panel, Mapping[Setting, Sequence[Result]]]
) -> list[tuple[str, list[Result]]]:
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


def rate_figure(title: str, results: Sequence[Result]) -> ReportFigure:
    """A heat map. A run of ten epochs has the errors after one to nine as well."""
    return _figure(*rate_grid(results), title)


def _figure(grid: Grid, unlike: int, title: str) -> ReportFigure:
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
    return ReportFigure(
        name="learning-rate-by-epoch",
        title=title,
        svg=_draw(grid, drawn, shown, title, f"{worse} of {len(grid)} are worse than unadapted."),
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
    places = np.unique(np.rint(np.linspace(0, len(values) - 1, most)).astype(int))
    return [values[place] for place in places]


def _draw(grid: Grid, rates: Sequence[float], epochs: Sequence[int], title: str, said: str) -> str:
    gains = np.full((len(rates), len(epochs)), np.nan)
    for i, rate in enumerate(rates):
        for j, epoch in enumerate(epochs):
            if (rate, epoch) in grid:
                gains[i, j] = grid[rate, epoch].start - grid[rate, epoch].error
    # The same in all figures: a point that was lost must not look like the collapse of another.
    most = _FULL * max(mean.start for mean in grid.values()) or 1.0
    height = _ROW * len(rates)
    frame = Frame(
        left=_LEFT, top=TOP, width=WIDTH - _LEFT - 16, height=height,
        x=Axis(label="epochs", low=0, high=len(epochs),
               marks=tuple((j + 0.5, str(e)) for j, e in enumerate(epochs))),
        y=Axis(label="", low=0, high=len(rates),
               marks=tuple((i + 0.5, rate_words(r)) for i, r in enumerate(rates))),
    )  # fmt: skip
    edges_x, edges_y = range(len(epochs) + 1), range(len(rates) + 1)
    marks = [cells(frame, list(edges_x), list(edges_y), gains, CHANGE, low=-most, high=most)]
    wide = frame.width / len(epochs)
    for i, j in zip(*np.nonzero(~np.isnan(gains)), strict=True):
        gain, mean = gains[i, j], grid[rates[i], epochs[j]]
        x, y = frame.place(j + 0.5, i + 0.5)
        # A class of the page's style would win over a plain attribute.
        ink = "#fff" if gain < -0.6 * most else "#222"
        words = f"{mean.error:.1f}{'†' if mean.collapsed else ''}"
        style = f"fill:{ink};font-size:{11 if wide > 36 else 9}px"
        marks.append(text(float(x), float(y) + 4, words, text_anchor="middle", style=style))
        if mean.error > mean.unadapted:
            box = {"x": j * wide + 2, "y": (len(rates) - i - 1) * _ROW + 2}
            marks.append(element("rect", **box, width=wide - 4, height=_ROW - 4, fill="none",
                                 stroke=_WORSE, stroke_width=2))  # fmt: skip
    below, key = TOP + height + 52, []
    if any(mean.error > mean.unadapted for mean in grid.values()):
        box = {"x": _LEFT, "y": below - 6, "width": 22, "height": 12}
        key.append(element("rect", **box, fill="none", stroke=_WORSE, stroke_width=2))
        key.append(text(_LEFT + 28, below + 4, "worse than the unadapted model"))
        below += 20
    if any(mean.collapsed for mean in grid.values()):
        key.append(text(_LEFT, below + 4, "† somewhere fewer than half of the classes in use"))
        below += 20
    # Further out than an axis has it, since rates are long.
    name = group(
        [text(0, 0, "learning rate", text_anchor="middle")],
        transform=f"translate(16 {TOP + height / 2:.2f}) rotate(-90)",
    )
    return finished(
        [inside(frame, marks), axes(frame), name, *key],
        height=below - 4,
        title=title,
        description="Mean top-1 error by learning rate and number of epochs, yellow where "
        f"learning lowered it and purple where learning raised it. {said}",
    )
