"""Phase diagrams over both temperatures: the two-point model's, and a real network's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from acclimate.errors import AcclimateError
from acclimate.reporting.axes import Axis, Frame, axes, inside
from acclimate.reporting.colours import CHANGE, ERROR, Scale
from acclimate.reporting.marks import cells, colour_bar, heat_map, legend, line
from acclimate.reporting.svg import document, text
from acclimate.theory import bound_on_student
from acclimate.theory.boundary import run_grid
from acclimate.theory.settings import Settings

__all__ = ["METHODS", "phase_figure", "real_network_figure"]

METHODS = {"pseudo-labels": True, "entropy": False}
"""Names of the methods, and whether the gradient is stopped at the teacher."""

_SIDE, _LEFT, _TOP, _GAP, _BELOW = 230, 64, 60, 40, 66
_LINES = {True: ("", "τs = τt"), False: ("6 4", "τs = τt/2")}
"""Dashes and name of the line that holds with and without stop-gradient."""


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
    run: Mapping[str, Any], *, baseline: str = "source", epoch: int = -1
) -> str:
    """Improvement (yellow) and degradation (purple) of a network's error, mean over the shifts.

    ``run`` is {"cells": {"SHIFT METHOD TAU_S TAU_T": {"source": 40.1, "batch_norm": 20.3,
    "after_epoch": [19.0, ...]}}}, in per cent; ``baseline`` is what to compare with, "source" or
    "batch_norm". Both predicted lines are drawn in. A teacher of 0 is one of hard labels.
    """
    gains = _gains(run["cells"], baseline=baseline, epoch=epoch)
    if not gains:
        raise AcclimateError(
            f"expected cells of {' or '.join(METHODS)}, got {len(run['cells'])} others"
        )
    students = sorted({s for _, s, _ in gains})
    teachers = sorted({t for _, _, t in gains})
    (y_edges, y_axis), (x_edges, x_axis) = _edges(students), _edges(teachers)
    most = max(abs(float(np.mean(values))) for values in gains.values()) or 1.0
    parts, counts = [], {len(values) for values in gains.values()}
    for column, method in enumerate(METHODS):
        frame = _frame(0, column, x_axis, y_axis)
        grid = np.full((len(students), len(teachers)), np.nan)
        for (name, s, t), values in gains.items():
            if name == method:
                grid[students.index(s), teachers.index(t)] = np.mean(values)
        picture = cells(frame, x_edges, y_edges, grid, CHANGE, low=-most, high=most)
        both = [_boundary(frame, stop) for stop in METHODS.values()]
        parts.append(inside(frame, [picture, *both]))
        parts.append(axes(frame, title=method, label_y=column == 0))
    span = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts)}"
    return _finish(
        parts,
        columns=2,
        rows=1,
        title=f"Error below {baseline.replace('_', ' ')}'s in points, mean of {span} shifts",
        description=(
            "By how much a network's error on shifted images falls (yellow) or rises (purple), "
            "over student and teacher temperature, with the two lines of Proposition 1."
        ),
        scale=CHANGE,
        words=[(0.0, f"{most:.1f} worse"), (0.5, "as before"), (1.0, f"{most:.1f} better")],
    )


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


def _edges(temperatures: list[float]) -> tuple[list[float], dict[str, Any]]:
    """Edges half-way between neighbours in the logarithm; 0 goes one step below the lowest."""
    shown = np.array(temperatures)
    positive = [t for t in temperatures if t > 0]
    ratio = positive[1] / positive[0] if len(positive) > 1 else 10.0
    shown[shown == 0] = min(positive, default=1.0) / ratio
    logs = np.log(shown)
    if len(logs) > 1:
        middle = (logs[1:] + logs[:-1]) / 2
        ends = [2 * logs[0] - middle[0], 2 * logs[-1] - middle[-1]]
    else:
        middle, ends = np.array([]), [logs[0] - np.log(ratio) / 2, logs[0] + np.log(ratio) / 2]
    edges = [float(e) for e in np.exp([ends[0], *middle, ends[1]])]
    marks = tuple((float(a), f"{b:g}") for a, b in zip(shown, temperatures, strict=True))
    return edges, {"low": edges[0], "high": edges[-1], "log": True, "marks": marks}


def _frame(row: int, column: int, x: dict[str, Any], y: dict[str, Any]) -> Frame:
    return Frame(
        left=_LEFT + column * (_SIDE + _GAP),
        top=_TOP + row * (_SIDE + _BELOW),
        width=_SIDE,
        height=_SIDE,
        x=Axis(label="teacher temperature τt", **x),
        y=Axis(label="student temperature τs", **y),
    )


def _boundary(frame: Frame, stop_gradient: bool) -> str:
    """White on black, to be seen on any colour."""
    ends = np.array([frame.x.low, frame.x.high])
    bound = ends * bound_on_student(stop_gradient=stop_gradient)
    dash, _ = _LINES[stop_gradient]
    below = line(frame, ends, bound, colour="#000000", width=4)
    return below + line(frame, ends, bound, colour="#ffffff", dash=dash)


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
