"""A figure of the report with the numbers behind it, and the small frames figures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from acclimate.report.axes import Axis, Frame, axes, inside
from acclimate.report.looks import Look
from acclimate.report.marks import dots, legend, line
from acclimate.report.svg import document, element, text
from acclimate.table import Table, number_entry

__all__ = [
    "TOP",
    "WIDTH",
    "Curve",
    "ReportFigure",
    "curves_figure",
    "finished",
    "grid",
    "padded",
    "short",
]

WIDTH = 420
"""Pixels. Narrow, so that words stay legible where a phone shows the whole figure."""

TOP = 50
"""Where frames begin, below two lines of title."""

_LEFT, _RIGHT, _HEIGHT = 58, 16, 220


@dataclass(frozen=True, kw_only=True)
class ReportFigure:
    """A drawing, its data, and the name it is saved under."""

    name: str
    title: str
    svg: str
    table: Table


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line: its name, whose it is, its points, and whether it is of the second kind (dashed)."""

    name: str
    recipe: str
    points: Sequence[tuple[float, float]]
    second: bool = False


def short(words: str, letters: int = 50) -> str:
    """Words that fit a figure; the middle goes, since names differ at their ends.

    >>> short("acclimate:wrn-40-2-augmix-cifar10", 16)
    'acclimat…cifar10'
    """
    if len(words) <= letters:
        return words
    return f"{words[: letters // 2]}…{words[len(words) - (letters - letters // 2 - 1) :]}"


def padded(values: Sequence[float], *, least: float | None = None) -> tuple[float, float]:
    """The range of an axis: a little more than that of its values.

    >>> padded([10.0, 20.0]), padded([5.0])
    ((9.4, 20.6), (4.5, 5.5))
    """
    low, high = min(values), max(values)
    space = 0.06 * (high - low) or max(0.1 * abs(high), 0.5)
    low = low - space
    return (low if least is None else max(low, least)), high + space


def grid(frame: Frame) -> str:
    """Faint lines at the ticks of the vertical axis."""
    lines = []
    for value, _ in frame.y.ticks():
        y = (1 - float(frame.y.share(value))) * frame.height
        lines.append(element("path", class_="grid", d=f"M0 {y:.2f}h{frame.width:.2f}"))
    return "".join(lines)


def finished(
    parts: Sequence[str], *, height: float, title: str, description: str, width: float = WIDTH
) -> str:
    """The drawing with its title above."""
    # Up to two lines; a single one stands where the second would, next to its frame.
    first_line, *rest = wrap(title, 50)
    lines = [first_line, *([short(" ".join(rest))] if rest else [])]
    top = 38 - 16 * (len(lines) - 1)
    head = "".join(text(12, top + 16 * i, w, class_="title") for i, w in enumerate(lines))
    return document(
        [head, *parts], width=width, height=height, title=title, description=description
    )


def curves_figure(
    curves: Sequence[Curve],
    looks: Mapping[str, Look],
    *,
    name: str,
    title: str,
    description: str,
    x: Axis,
    y: Axis,
    notes: Sequence[str] = (),
    diagonal: bool = False,
) -> ReportFigure:
    """Lines with dots, the legend below them, by the looks of their recipes.

    The second of a name is dashed, in its colour.
    """
    frame = Frame(
        left=_LEFT, top=TOP, width=WIDTH - _LEFT - _RIGHT, height=_HEIGHT, x=x, y=y
    )  # fmt: skip
    marks = [grid(frame)]
    if diagonal:
        ends = [max(x.low, y.low), min(x.high, y.high)]
        marks.append(line(frame, ends, ends, colour="#888888", width=1, dash="4 4"))
    entries = []
    for curve in curves:
        colour, dash, _ = looks[curve.recipe]
        xs, ys = zip(*curve.points, strict=True)
        dashes = "5 4" if curve.second else dash
        marks.append(
            line(frame, xs, ys, colour=colour, dash=dashes, width=1.5 if curve.second else 2)
        )
        if not curve.second or len(curve.points) == 1:  # of a single point there is no line to see
            marks.append(dots(frame, xs, ys, colour=colour, radius=3))
        if not curve.second:
            entries.append((colour, dash, short(curve.name, 52)))
    below = TOP + _HEIGHT + 56
    svg = finished(
        [inside(frame, marks), axes(frame), legend(_LEFT, below, entries)],
        height=below + 18 * len(entries) - 2,
        title=title,
        description=description,
    )
    rows = [
        [curve.name, number_entry(a, text=f"{a:.4g}"), number_entry(b, digits=2)]
        for curve in curves
        for a, b in curve.points
    ]
    if any(curve.second for curve in curves):
        kinds = [curve.second for curve in curves for _ in curve.points]
        rows = [
            [row[0], "online" if second else "after", *row[1:]]
            for row, second in zip(rows, kinds, strict=True)
        ]
    kind = ["kind"] if any(curve.second for curve in curves) else []
    table = Table(
        name=name, title=title, header=["line", *kind, x.label, y.label], rows=rows, notes=notes
    )
    return ReportFigure(name=name, title=title, svg=svg, table=table)
