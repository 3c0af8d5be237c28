"""What is drawn in a frame: lines, dots, arrows, heat maps; and the legends beside it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from acclimate.report.axes import Frame
from acclimate.report.colours import Scale, css, shade
from acclimate.report.svg import element, group, number, text

__all__ = ["arrows", "cells", "colour_bar", "dot_ink", "dots", "heat_map", "legend", "line"]


def line(
    frame: Frame, x: ArrayLike, y: ArrayLike, *, colour: str, width: float = 2, dash: str = ""
) -> str:
    """A line through the points."""
    places = [f"{number(a)},{number(b)}" for a, b in zip(*frame.place(x, y), strict=True)]
    points = " ".join(place for place, _ in groupby(places))  # those at rest say nothing new
    dashes = {"stroke_dasharray": dash} if dash else {}
    return element(
        "polyline", points=points, fill="none", stroke=colour, stroke_width=width, **dashes
    )


def dots(
    frame: Frame,
    x: ArrayLike,
    y: ArrayLike,
    *,
    colour: str,
    radius: float = 4,
    ring: bool = False,
) -> str:
    """A dot, or a ring, for each point."""
    places = zip(*frame.place(x, y), strict=True)
    circles = [element("circle", cx=float(a), cy=float(b), r=radius) for a, b in places]
    return group(circles, **dot_ink(colour, ring=ring))


def dot_ink(colour: str, *, ring: bool = False) -> dict[str, str]:
    """What makes a circle a dot, or a ring, of a colour.

    >>> dot_ink("#0072b2"), dot_ink("#0072b2", ring=True)["fill"]
    ({'fill': '#0072b2'}, 'none')
    """
    return {"fill": "none", "stroke": colour, "stroke_width": "2"} if ring else {"fill": colour}


def arrows(
    frame: Frame, x: ArrayLike, y: ArrayLike, dx: ArrayLike, dy: ArrayLike, *, length: float = 12
) -> str:
    """An arrow at each point, all of one length; ``dx`` and ``dy`` give the direction only."""
    a, b = frame.place(x, y)
    right = np.asarray(dx, dtype=float) * frame.width / (frame.x.high - frame.x.low)
    down = -np.asarray(dy, dtype=float) * frame.height / (frame.y.high - frame.y.low)
    size = np.hypot(right, down)
    size = np.where(size > 0, size / length, np.inf)
    u, v = right / size, down / size
    path = "".join(
        # The shaft, then the two barbs of the head.
        f"M{p - m / 2:.1f} {q - n / 2:.1f}l{m:.1f} {n:.1f}"
        f"l{-0.35 * m + 0.2 * n:.1f} {-0.35 * n - 0.2 * m:.1f}"
        f"m{0.35 * m - 0.2 * n:.1f} {0.35 * n + 0.2 * m:.1f}"
        f"l{-0.35 * m - 0.2 * n:.1f} {-0.35 * n + 0.2 * m:.1f}"
        for p, q, m, n in zip(a.ravel(), b.ravel(), u.ravel(), v.ravel(), strict=True)
        if m or n
    )
    return element("path", class_="rule", d=path, stroke_opacity=0.7)


def heat_map(frame: Frame, values: ArrayLike, scale: Scale, *, low: float, high: float) -> str:
    """Rows of values, the first at the bottom, over the whole frame: one picture, one pixel each.

    On a logarithmic axis the rows or columns are to be evenly spaced in the logarithm.
    """
    share = (np.asarray(values, dtype=float) - low) / (high - low)
    file = io.BytesIO()
    Image.fromarray(shade(share[::-1], scale)).save(file, format="PNG", optimize=True)
    return element(
        "image",
        width=frame.width,
        height=frame.height,
        preserveAspectRatio="none",
        # Without this, neighbouring cells run into one another.
        style="image-rendering:pixelated",
        href="data:image/png;base64," + base64.b64encode(file.getvalue()).decode(),
    )


def cells(
    frame: Frame,
    x_edges: Sequence[float],
    y_edges: Sequence[float],
    values: ArrayLike,
    scale: Scale,
    *,
    low: float,
    high: float,
    told: ArrayLike | None = None,
) -> str:
    """A heat map of few cells of any width, each with its value to hover over; nan stays blank.

    ``told`` are values to hover over where the colour follows others.
    """
    v = np.asarray(values, dtype=float)
    x, _ = frame.place(x_edges, frame.y.low)
    _, y = frame.place(frame.x.low, y_edges)
    shown = v if told is None else np.asarray(told, dtype=float)
    colours = shade((v - low) / (high - low), scale)
    return group(
        [
            element(
                "rect",
                element("title", f"{shown[i, j]:.4g}"),
                x=float(x[j]),
                y=float(y[i + 1]),
                width=float(x[j + 1] - x[j]),
                height=float(y[i] - y[i + 1]),
                fill=css(colours[i, j]),
            )
            for i, j in zip(*np.nonzero(~np.isnan(v)), strict=True)
        ],
        shape_rendering="crispEdges",
    )


def legend(x: float, y: float, entries: Sequence[tuple[str, str, str]]) -> str:
    """Lines one below the other: colour, dashes (or nothing), words."""
    parts = []
    for row, (colour, dash, words) in enumerate(entries):
        at = y + 18 * row
        dashes = {"stroke_dasharray": dash} if dash else {}
        stroke = element("path", d=f"M{x:.2f} {at:.2f}h22", stroke=colour, stroke_width=3, **dashes)
        parts.append(stroke)
        parts.append(text(x + 28, at + 4, words))
    return group(parts)


def colour_bar(
    x: float, y: float, height: float, scale: Scale, labels: Sequence[tuple[float, str]]
) -> str:
    """A scale's colours from bottom to top, with words at shares of the height."""
    count = 64
    colours = shade(np.linspace(0, 1, count), scale)
    step = height / count
    parts = [
        # Half a pixel more than its share, or the paper shines through.
        element(
            "rect", x=x, y=y + height - (i + 1) * step, width=14, height=step + 0.5, fill=css(c)
        )
        for i, c in enumerate(colours)
    ]
    parts += [text(x + 20, y + (1 - share) * height + 4, words) for share, words in labels]
    return group(parts)
