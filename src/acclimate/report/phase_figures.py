"""Phase diagrams over both temperatures: the two-point model's, and a real network's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.errors import AcclimateError
from acclimate.report.axes import Axis, Frame, axes, inside
from acclimate.report.colours import CHANGE, ERROR, Scale
from acclimate.report.marks import cells, colour_bar, heat_map, legend, line
from acclimate.report.svg import document, text
from acclimate.theory import bound_on_student
from acclimate.theory.boundary import run_grid
from acclimate.theory.settings import Settings

__all__ = ["METHODS", "phase_figure", "real_network_figure"]

METHODS = {"pseudo-labels": True, "entropy": False}
"""Names of the methods, and whether the gradient is stopped at the teacher."""

_SIDE, _LEFT, _TOP, _GAP, _BELOW = 230, 64, 60, 40, 66
_LINES = {True: ("", "τs = τt"), False: ("6 4", "τs = τt/2")}
"""Dashes and name of the line that holds with and without stop-gradient."""
_BASELINES = {"source": "the source's", "batch_norm": "new statistics alone"}


def phase_figure(
    series: Sequence[Settings], *, title: str, step: Callable[[], object] = lambda: None
) -> str:
    """A row for each method, a column for each setting: the error of the model, and the line.

    A single setting has its two methods side by side. ``step`` is called after every panel.
    """
    parts = []
    for i, (method, stop_gradient) in enumerate(METHODS.items()):
        for j, settings in enumerate(series):
            row, column = (i, j) if len(series) > 1 else (0, i)
            axis = {"low": settings.low, "high": settings.high, "log": True}
            frame = _frame(row, column, axis, axis)
            run = run_grid(settings, stop_gradient=stop_gradient)
            picture = heat_map(frame, run.error, ERROR, low=0.0, high=1.0)
            parts.append(inside(frame, [picture, _boundary(frame, stop_gradient)]))
            parts.append(axes(frame, title=f"{method}, lr {settings.lr:g}", label_y=column == 0))
            step()
    first = series[0]
    start = ", ".join(f"{w:g}" for w in first.start)
    return _finish(
        parts,
        columns=max(len(series), 2),
        rows=min(len(series), 2),
        title=f"{title}: momentum {first.momentum:g}, start [{start}], {first.steps:,} steps",
        description=(
            "Error of the two-point model over student and teacher temperature, from 0 (yellow) "
            "to 1 (purple). Below the line that Proposition 1 predicts the outputs vanish."
        ),
        scale=ERROR,
        words=[(0.0, "0: learnt"), (0.5, "½: collapsed"), (1.0, "1: flipped")],
    )


def real_network_figure(
    run: Mapping[str, Any],
    *,
    baseline: str = "source",
    epoch: int = -1,
    who: str = "network",
    ends: tuple[float, float] | None = None,
) -> str:
    """Improvement (yellow) and degradation (purple) of a network's error, mean over the shifts.

    ``run`` is {"cells": {"SHIFT METHOD TAU_S TAU_T": {"source": 40.1, "batch_norm": 20.3,
    "after_epoch": [19.0, ...]}}}, in per cent; ``baseline`` is what to compare with, "source" or
    "batch_norm". Both predicted lines are drawn in. A teacher of 0 is one of hard labels, in a
    column of its own. Colour follows the square root of the change, from ``ends`` points worse to
    so many better (default: the extremes), so that a point gained is seen beside a collapse.
    """
    gains = _gains(run["cells"], baseline=baseline, epoch=epoch)
    if not gains:
        raise AcclimateError(
            f"expected cells of {' or '.join(METHODS)}, got {len(run['cells'])} others"
        )
    means = {place: float(np.mean(values)) for place, values in gains.items()}
    if ends is None:
        ends = (max(0.0, -min(means.values())), max(0.0, *means.values()))
    parts, counts = [], {len(values) for values in gains.values()}
    for column, (method, stop_gradient) in enumerate(METHODS.items()):
        found = {(s, t): mean for (name, s, t), mean in means.items() if name == method}
        if not found:
            continue
        teachers, students = _spread({t for _, t in found}), _spread({s for s, _ in found})
        frame = _frame(0, column, teachers.axis, students.axis)
        grid = np.array(
            [[found.get((s, t), np.nan) for t in teachers.values] for s in students.values]
        )
        where, x, y = _share(grid, ends), teachers.edges, students.edges
        picture = cells(frame, x, y, where, CHANGE, low=0.0, high=1.0, told=grid)
        lines = [
            _boundary(frame, stop, low=teachers.soft, bold=stop == stop_gradient)
            for stop in METHODS.values()
        ]
        parts.append(inside(frame, [picture, *lines]))
        title = f"{method} ({_LINES[stop_gradient][1]})"
        parts.append(axes(frame, title=title, label_y=len(parts) == 1))
    span = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts)}"
    against = _BASELINES.get(baseline, baseline)
    return _finish(
        parts,
        columns=2,
        rows=1,
        title=f"Error of the {who} against {against}, in points, mean of {span} shifts",
        description=(
            "By how much a network's error on shifted images falls (yellow) or rises (purple), "
            "over student and teacher temperature, with the two lines of Proposition 1. "
            "Below its line a method is predicted to collapse."
        ),
        scale=CHANGE,
        words=[
            (0.0, f"{ends[0]:.3g} worse"),
            (0.25, f"{ends[0] / 4:.3g} worse"),
            (0.5, "as before"),
            (0.75, f"{ends[1] / 4:.3g} better"),
            (1.0, f"{ends[1]:.3g} better"),
        ],
    )


def _share(gains: NDArray[np.float64], ends: tuple[float, float]) -> NDArray[np.float64]:
    """Where on the scale: 0 for the worst, ½ for no change, 1 for the best."""
    worst, best = (end or 1.0 for end in ends)
    size = np.sqrt(np.abs(gains) / np.where(gains < 0, worst, best))
    return np.asarray(0.5 + 0.5 * np.sign(gains) * size)


def _gains(
    found: Mapping[str, Any], *, baseline: str, epoch: int
) -> dict[tuple[str, float, float], list[float]]:
    gains: dict[tuple[str, float, float], list[float]] = {}
    for key, cell in found.items():
        try:
            _, method, tau_s, tau_t = key.rsplit(" ", 3)
            gain = cell[baseline] - cell["after_epoch"][epoch]
            place = (method, float(tau_s), float(tau_t))
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise AcclimateError(
                f"expected 'SHIFT METHOD TAU_S TAU_T' with {baseline} and after_epoch, "
                f"got {key!r}: {cell}"
            ) from error
        if method in METHODS:
            gains.setdefault(place, []).append(gain)
    return gains


@dataclass(frozen=True, kw_only=True)
class _Spread:
    """Temperatures along an axis; nan stands for the gap that sets hard labels apart."""

    values: list[float]
    edges: list[float]
    axis: dict[str, Any]
    soft: float
    """Where the temperatures above 0 begin."""


def _spread(temperatures: set[float]) -> _Spread:
    """Edges half-way between neighbours in the logarithm; hard labels two steps below the rest."""
    soft = sorted(t for t in temperatures if t > 0)
    logs = np.log(soft or [1.0])
    steps = np.diff(logs) if len(logs) > 1 else np.array([np.log(10.0)])
    middle = logs[:-1] + np.diff(logs) / 2
    edges = [logs[0] - steps[0] / 2, *middle, logs[-1] + steps[-1] / 2]
    values, first = soft, edges[0]
    named = [t for t in soft if np.isclose(np.log10(t) % 1, [0, 1], atol=1e-6).any()]
    named = named if len(soft) > 6 and len(named) > 1 else soft
    marks = [(t, f"{t:g}") for t in named]
    if min(temperatures) <= 0:
        values = [0.0, np.nan, *soft] if soft else [0.0]
        if soft:
            edges = [first - 2.2 * steps[0], first - 1.2 * steps[0], *edges]
        middle_of_hard = (edges[0] + edges[1]) / 2
        marks.insert(0, (float(np.exp(middle_of_hard)), "hard"))
    places = [float(e) for e in np.exp(edges)]
    axis = {"low": places[0], "high": places[-1], "log": True, "marks": tuple(marks)}
    return _Spread(values=values, edges=places, axis=axis, soft=float(np.exp(first)))


def _frame(row: int, column: int, x: dict[str, Any], y: dict[str, Any]) -> Frame:
    return Frame(
        left=_LEFT + column * (_SIDE + _GAP),
        top=_TOP + row * (_SIDE + _BELOW),
        width=_SIDE,
        height=_SIDE,
        x=Axis(label="teacher temperature τt", **x),
        y=Axis(label="student temperature τs", **y),
    )


def _boundary(
    frame: Frame, stop_gradient: bool, *, low: float | None = None, bold: bool = True
) -> str:
    """White on black, to be seen on any colour; from ``low`` on."""
    ends = np.array([frame.x.low if low is None else low, frame.x.high])
    bound = ends * bound_on_student(stop_gradient=stop_gradient)
    dash, _ = _LINES[stop_gradient]
    below = line(frame, ends, bound, colour="#000000", width=4 if bold else 2)
    return below + line(frame, ends, bound, colour="#ffffff", width=2 if bold else 1, dash=dash)


def _finish(
    parts: list[str],
    *,
    columns: int,
    rows: int,
    title: str,
    description: str,
    scale: Scale,
    words: Sequence[tuple[float, str]],
) -> str:
    """Title, colour bar and the names of the lines around the panels."""
    right = _LEFT + columns * (_SIDE + _GAP) - 14
    below = _TOP + rows * (_SIDE + _BELOW)
    bar = colour_bar(right, _TOP, below - _BELOW - _TOP - 56, scale, words)
    # Grey, for paper of either colour.
    entries = [("#888888", dash, name) for dash, name in _LINES.values()]
    return document(
        [
            text(_LEFT, 24, title, class_="title"),
            *parts,
            bar,
            legend(right, below - _BELOW - 24, entries),
        ],
        width=right + 130,
        height=below - 16,
        title=title,
        description=description,
    )
