"""The two-point model's way through time: outputs by step, and the field they follow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from acclimate.report.axes import Axis, Frame, axes, inside
from acclimate.report.colours import SERIES
from acclimate.report.marks import arrows, dots, legend, line
from acclimate.report.svg import document, text
from acclimate.theory import TwoPoint, simulate

__all__ = ["field_figure", "trajectory_figure"]

_SIDE, _LEFT, _TOP, _GAP, _BELOW = 260, 64, 60, 60, 70
_STEPS = 2_000
_RATIOS = (0.25, 0.45, 0.55, 0.7, 1.1, 3.0)
_STARTS = ((0.5, -0.5), (0.9, 0.3), (-0.4, 1.3), (-1.2, -0.9), (1.3, -1.2))


class _Case(NamedTuple):
    name: str
    tau_s: float
    stop_gradient: bool


_CASES = (
    _Case("pseudo-labels, τs = 2 τt: grows", 2.0, True),
    _Case("pseudo-labels, τs = τt/2: collapses", 0.5, True),
    _Case("entropy, τs = τt: grows", 1.0, False),
    _Case("entropy, τs = 0.4 τt: only near zero", 0.4, False),
)


def trajectory_figure() -> str:
    """An output over the steps, for student temperatures on both sides of the lines; τt = 1."""
    parts = []
    for column, (method, stop) in enumerate((("pseudo-labels", True), ("entropy", False))):
        run = simulate(_RATIOS, 1.0, stop_gradient=stop, steps=_STEPS, keep=_STEPS)
        assert run.trajectory is not None
        frame = Frame(
            left=_LEFT + column * (_SIDE + _GAP),
            top=_TOP,
            width=_SIDE,
            height=_SIDE,
            x=Axis(label="step", low=1, high=_STEPS, log=True),
            y=Axis(label="output y_k", low=-0.5, high=2),
        )
        # Evenly spaced in the logarithm, since every step would be a large file.
        at = np.unique(np.rint(np.geomspace(1, _STEPS, 160)).astype(int))
        lines = [
            line(frame, at, run.trajectory[at, i, 0], colour=SERIES[i]) for i in range(len(_RATIOS))
        ]
        parts += [inside(frame, lines), axes(frame, title=method, label_y=column == 0)]
    right = _LEFT + 2 * (_SIDE + _GAP) - 30
    named = zip(SERIES, _RATIOS, strict=True)
    names = legend(right, _TOP + 12, [(colour, "", f"τs = {r:g} τt") for colour, r in named])
    title = "Outputs over time: τt = 1, lr 0.1, momentum 0.9, start 0.5"
    return document(
        [text(_LEFT, 24, title, class_="title"), *parts, names],
        width=right + 130,
        height=_TOP + _SIDE + 50,
        title=title,
        description=(
            "With pseudo-labels the outputs vanish for τs below τt and grow above; with entropy "
            "minimisation they vanish below τt/2 and grow above."
        ),
    )


def field_figure() -> str:
    """Where the outputs are pulled from everywhere, and paths from five starts; τt = 1."""
    parts = []
    grid = np.linspace(-1.35, 1.35, 15)
    x, y = np.meshgrid(grid, grid)
    for index, case in enumerate(_CASES):
        frame = Frame(
            left=_LEFT + index % 2 * (_SIDE + _GAP),
            top=_TOP + index // 2 * (_SIDE + _BELOW),
            width=_SIDE,
            height=_SIDE,
            x=Axis(label="output y_k", low=-1.5, high=1.5),
            y=Axis(label="output y_l", low=-1.5, high=1.5),
        )
        model = TwoPoint(case.tau_s, 1.0, stop_gradient=case.stop_gradient)
        state = np.stack([x, y], axis=-1)
        if case.stop_gradient:
            state = np.concatenate([state, state], axis=-1)
        pull = model.velocity(state)
        marks = [arrows(frame, x, y, pull[..., 0], pull[..., 1])]
        for start, colour in zip(_STARTS, SERIES, strict=False):
            path = _path(case, start)
            marks.append(line(frame, path[:, 0], path[:, 1], colour=colour))
            marks.append(dots(frame, [start[0]], [start[1]], colour=colour))
        parts += [inside(frame, marks), axes(frame, title=case.name, label_y=index % 2 == 0)]
    title = "Vector fields and paths: τt = 1, lr 0.1, momentum 0.9"
    return document(
        [text(_LEFT, 24, title, class_="title"), *parts],
        width=_LEFT + 2 * (_SIDE + _GAP) - 30,
        height=_TOP + 2 * (_SIDE + _BELOW),
        title=title,
        description=(
            "Arrows in the plane of the two outputs point away from zero above the line of "
            "Proposition 1 and to zero below it; for entropy minimisation below its line only "
            "from near zero."
        ),
    )


def _path(case: _Case, start: tuple[float, float]) -> NDArray[np.float64]:
    run = simulate(
        case.tau_s,
        1.0,
        stop_gradient=case.stop_gradient,
        start=start,
        points=np.eye(2),
        steps=400,
        keep=400,
    )
    assert run.trajectory is not None
    # What has left the frame does not come back, and would take resvg seconds.
    return np.asarray(run.trajectory[np.abs(run.trajectory).max(axis=-1) < 3])
