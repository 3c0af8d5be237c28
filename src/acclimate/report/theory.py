"""The two-point model as charts, and as a page to play with that needs nothing else."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from acclimate.errors import AcclimateError
from acclimate.report.charts import CHANGE, ERROR, SERIES, Spec, axis, placed
from acclimate.theory import TwoPoint, bound_on_student, simulate
from acclimate.theory.boundary import run_grid
from acclimate.theory.settings import FIGURES, MAIN_FIGURE, METHODS, Settings

__all__ = [
    "QUICK", "TheoryFigure", "field_figure", "phase_figure", "real_network_figure", "shade",
    "theory_figures", "theory_page", "trajectory_figure",
]  # fmt: skip

QUICK = 60
"""Temperatures a side of a quick phase diagram; the paper's have 250."""

_TITLES = {
    "phase": "The two-point model",
    "2p-momentum": "Learning rates, with momentum",
    "2p-standard": "Learning rates, without momentum",
    "2p-weight": "Learning rates, from another start",
}
_SIDE = 230
_BOUNDS = {True: "τs = τt", False: "τs = τt/2"}
"""Names of the line that holds with and without stop-gradient."""
_BASELINES = {"source": "the source's", "batch_norm": "new statistics alone"}
_TEACHER, _STUDENT = "teacher temperature τt", "student temperature τs"

Step: TypeAlias = Callable[[], object]
"""What is called after a panel."""


@dataclass(frozen=True)
class TheoryFigure:
    """A figure to be computed; ``draw`` calls a step so many times."""

    name: str
    panels: int
    draw: Callable[[Step], Spec]


def theory_figures(*, quick: bool = False) -> Iterator[TheoryFigure]:
    """All of them, from the main text's to the field; nothing is computed yet.

    >>> [figure.name for figure in theory_figures()]
    ['phase', '2p-momentum', '2p-standard', '2p-weight', 'trajectories', 'field']
    """
    for name, series in {"phase": (MAIN_FIGURE,), **FIGURES}.items():
        chosen = [replace(each, count=QUICK) if quick else each for each in series]
        draw = partial(phase_figure, chosen, title=_TITLES[name])
        yield TheoryFigure(name, len(METHODS) * len(chosen), draw)
    yield TheoryFigure("trajectories", len(METHODS), trajectory_figure)
    yield TheoryFigure("field", len(_CASES), field_figure)


def theory_page() -> str:
    """The interactive page, with its style and scripts put in.

    >>> page = theory_page()
    >>> page[:15], "page.js*/" in page, "function trajectory" in page
    ('<!doctype html>', False, True)
    """
    folder = files("acclimate.report") / "theory_assets"
    page = (folder / "page.html").read_text(encoding="utf-8")
    for name in ("page.css", "model.js", "drawing.js", "page.js"):
        page = page.replace(f"/*{name}*/", (folder / name).read_text(encoding="utf-8").strip())
    return page


def phase_figure(series: Sequence[Settings], step: Step = lambda: None, *, title: str) -> Spec:
    """A row for each method, a column for each setting: the error of the model, and the line.

    A single setting has its two methods side by side.
    """
    panels = []
    for method, stop_gradient in METHODS.items():
        for settings in series:
            ends = (settings.low, settings.high)
            x, y = (axis(name, *ends, log=True) for name in (_TEACHER, _STUDENT))
            error = run_grid(settings, stop_gradient=stop_gradient).error
            layers = [_image(error), *_bound(stop_gradient, ends, x, y)]
            panels.append(_panel(f"{method}, lr {settings.lr:g}", layers))
            step()
    first = series[0]
    start = ", ".join(f"{w:g}" for w in first.start)
    return {
        "title": f"{title}: momentum {first.momentum:g}, start [{start}], {first.steps:,} steps",
        "description": "Error of the two-point model over student and teacher temperature, from 0 "
        "(yellow) to 1 (purple). Below the line that Proposition 1 predicts the outputs vanish.",
        "columns": max(len(series), 2),
        "concat": panels,
    }


def real_network_figure(
    run: Mapping[str, Any],
    *,
    baseline: str = "source",
    epoch: int = -1,
    who: str = "network",
    ends: tuple[float, float] | None = None,
) -> Spec:
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
    panels = []
    for method, stop_gradient in METHODS.items():
        found = {(s, t): mean for (name, s, t), mean in means.items() if name == method}
        if not found:
            continue
        students, teachers = (_Spread.of(set(each)) for each in zip(*found, strict=True))
        x, y = teachers.axis(_TEACHER), students.axis(_STUDENT)
        between = (teachers.soft, teachers.high)
        layers = [_cells(found, teachers, students, ends, x, y)]
        for stop in METHODS.values():
            layers += _bound(stop, between, x, y, bold=stop == stop_gradient)
        panels.append(_panel(f"{method} ({_BOUNDS[stop_gradient]})", layers))
    counts = {len(values) for values in gains.values()}
    span = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts)}"
    return {
        "title": f"Error of the {who} against {_BASELINES.get(baseline, baseline)}, in points, "
        f"mean of {span} shifts",
        "description": "By how much a network's error on shifted images falls (yellow) or rises "
        "(purple), over student and teacher temperature, with the two lines of Proposition 1. "
        "Below its line a method is predicted to collapse.",
        "columns": 2,
        "concat": panels,
    }


def trajectory_figure(step: Step = lambda: None) -> Spec:
    """An output over the steps, for student temperatures on both sides of the lines; τt = 1."""
    steps, ratios = 2_000, (0.25, 0.45, 0.55, 0.7, 1.1, 3.0)
    x, y = axis("step", 1, steps, log=True), axis("output y_k", -0.5, 2)
    # Evenly spaced in the logarithm, since every step would be a large file.
    at = np.unique(np.rint(np.geomspace(1, steps, 160)).astype(int))
    panels = []
    for method, stop in METHODS.items():
        run = simulate(ratios, 1.0, stop_gradient=stop, steps=steps, keep=steps)
        assert run.trajectory is not None
        paths = {f"τs = {ratio:g} τt": np.stack([at, run.trajectory[at, i, 0]], axis=-1)
                 for i, ratio in enumerate(ratios)}  # fmt: skip
        panels.append(_panel(method, [_lines(paths, x, y, legend=True)], side=260))
        step()
    return {
        "title": "Outputs over time: τt = 1, lr 0.1, momentum 0.9, start 0.5",
        "description": "With pseudo-labels the outputs vanish for τs below τt and grow above; with "
        "entropy minimisation they vanish below τt/2 and grow above.",
        "columns": 2,
        "concat": panels,
    }


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
_STARTS = ((0.5, -0.5), (0.9, 0.3), (-0.4, 1.3), (-1.2, -0.9), (1.3, -1.2))


def field_figure(step: Step = lambda: None) -> Spec:
    """Where the outputs are pulled from everywhere, and paths from five starts; τt = 1."""
    places = np.linspace(-1.35, 1.35, 15)
    at = np.stack(np.meshgrid(places, places), axis=-1).reshape(-1, 2)
    x, y = axis("output y_k", -1.5, 1.5), axis("output y_l", -1.5, 1.5)
    panels = []
    for name, tau_s, stop in _CASES:
        pull = TwoPoint(tau_s, 1.0, stop_gradient=stop).velocity(
            np.hstack([at, at]) if stop else at
        )
        # Turned clockwise from upright, as marks are.
        turned = np.degrees(np.arctan2(pull[..., 0], pull[..., 1]))
        arrows = [
            {"x": round(float(a), 3), "y": round(float(b), 3), "turn": round(float(angle), 1)}
            for (a, b), angle, size in zip(at, turned, np.abs(pull[..., :2]).sum(-1), strict=True)
            if size > 0
        ]
        paths = {}
        for start in _STARTS:
            run = simulate(tau_s, 1.0, stop_gradient=stop, start=start, points=np.eye(2),
                           steps=400, keep=400)  # fmt: skip
            assert run.trajectory is not None
            # What has left the frame does not come back.
            paths[str(start)] = run.trajectory[np.abs(run.trajectory).max(axis=-1) < 3]
        layers: list[Spec] = [
            {"data": {"values": arrows},
             "mark": {"type": "point", "shape": "arrow", "size": 140, "filled": True,
                      "color": "#888888"},
             "encoding": {**placed(x, y),
                          "angle": {"field": "turn", "type": "quantitative",
                                    "scale": {"domain": [0, 360], "range": [0, 360]}}}},
            _lines(paths, x, y),
            {"data": {"values": [{"line": str(s), "x": s[0], "y": s[1]} for s in _STARTS]},
             "mark": {"type": "point", "filled": True, "size": 60},
             "encoding": {**placed(x, y),
                          "color": {"field": "line", "type": "nominal", "legend": None}}},
        ]  # fmt: skip
        panels.append(_panel(name, layers, side=260))
        step()
    return {
        "title": "Vector fields and paths: τt = 1, lr 0.1, momentum 0.9",
        "description": "Arrows in the plane of the two outputs point away from zero above the line "
        "of Proposition 1 and to zero below it; for entropy minimisation below its line only from "
        "near zero. Otherwise the outputs collapse.",
        "columns": 2,
        "concat": panels,
    }


def _panel(title: str, layers: Sequence[Spec], *, side: int = _SIDE) -> Spec:
    return {"title": title, "width": side, "height": side, "layer": list(layers)}


def _lines(paths: Mapping[str, NDArray[Any]], x: Spec, y: Spec, *, legend: bool = False) -> Spec:
    values = [
        {"line": name, "x": round(float(a), 4), "y": round(float(b), 4), "order": i}
        for name, points in paths.items()
        for i, (a, b) in enumerate(points)
    ]
    scale = {"domain": list(paths), "range": list(SERIES[: len(paths)])}
    colour = {"field": "line", "type": "nominal", "scale": scale, "title": None}
    return {
        "data": {"values": values},
        "mark": {"type": "line", "clip": True},
        "encoding": {**placed(x, y),
                     "order": {"field": "order", "type": "quantitative"},
                     "color": colour if legend else {**colour, "legend": None}},
    }  # fmt: skip


def _bound(
    stop_gradient: bool, ends: tuple[float, float], x: Spec, y: Spec, *, bold: bool = True
) -> list[Spec]:
    """The predicted line, white on black to be seen on any colour, between two teachers."""
    slope, name = bound_on_student(stop_gradient=stop_gradient), _BOUNDS[stop_gradient]
    values = [{"x": end, "y": end * slope, "line": name} for end in ends]
    dashes = {"domain": list(_BOUNDS.values()), "range": [[1, 0], [6, 4]]}
    legend = {"symbolStrokeColor": "#888888", "title": None}
    line = {"type": "line", "clip": True}
    return [
        {"data": {"values": values}, "encoding": placed(x, y),
         "mark": {**line, "color": "#000000", "strokeWidth": 4 if bold else 2}},
        {"data": {"values": values},
         "mark": {**line, "color": "#ffffff", "strokeWidth": 2 if bold else 1},
         "encoding": {**placed(x, y),
                      "strokeDash": {"field": "line", "type": "nominal", "scale": dashes,
                                     "legend": legend}}},
    ]  # fmt: skip


def _scale(colours: Sequence[str], words: Mapping[float, str]) -> Spec:
    """A colour for values from 0 to 1, and a legend with these words."""
    told = " : ".join(f"datum.value == {value} ? '{word}'" for value, word in words.items())
    stops = [i / (len(colours) - 1) for i in range(len(colours))]
    return {
        "type": "quantitative",
        "title": None,
        "scale": {"domain": stops, "range": list(colours), "interpolate": "rgb"},
        "legend": {"orient": "right", "values": list(words), "labelExpr": f"{told} : ''",
                   "gradientLength": 150, "labelLimit": 200},
    }  # fmt: skip


_LEARNT = {0: "0: learnt", 0.5: "½: collapsed", 1: "1: flipped"}


def _image(values: ArrayLike) -> Spec:
    """Rows of values from 0 to 1, the first at the bottom, as one image: cells are too many."""
    file = io.BytesIO()
    Image.fromarray(shade(np.asarray(values)[::-1], ERROR)).save(file, format="PNG", optimize=True)
    url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {
        "data": {"values": [{"url": url, "error": 0}]},
        "mark": {"type": "image", "width": _SIDE, "height": _SIDE, "align": "left",
                 "baseline": "top", "aspect": False, "smooth": False},
        "encoding": {"x": {"value": 0}, "y": {"value": 0}, "url": {"field": "url"},
                     "color": {"field": "error", **_scale(ERROR, _LEARNT)}},
    }  # fmt: skip


def shade(values: ArrayLike, scale: Sequence[str]) -> NDArray[np.uint8]:
    """Values from 0 to 1 as (..., 3) colours; what lies outside takes the end's, nan is grey.

    >>> shade([0.0, 1.0, 7.0, np.nan], ("#000000", "#ff8000")).tolist()
    [[0, 0, 0], [255, 128, 0], [255, 128, 0], [128, 128, 128]]
    """
    v = np.asarray(values, dtype=float)
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in scale])
    places = np.linspace(0, 1, len(stops))
    filled = np.where(np.isnan(v), 0.0, v)
    mixed = np.stack([np.interp(filled, places, stops[:, i]) for i in range(3)], axis=-1)
    mixed[np.isnan(v)] = 128
    return np.asarray(np.rint(mixed), dtype=np.uint8)


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
    """Temperatures along an axis, each with the edges of its cells."""

    edges: Mapping[float, tuple[float, float]]
    soft: float
    """Where the temperatures above 0 begin."""
    high: float

    @classmethod
    def of(cls, temperatures: set[float]) -> _Spread:
        """Edges half-way between neighbours in the logarithm; hard labels two steps below."""
        soft = sorted(t for t in temperatures if t > 0)
        logs = np.log(soft or [1.0])
        steps = np.diff(logs) if len(logs) > 1 else np.array([np.log(10.0)])
        inner = logs[:-1] + np.diff(logs) / 2
        ends = np.exp([logs[0] - steps[0] / 2, *inner, logs[-1] + steps[-1] / 2]).tolist()
        pairs = list(pairwise(ends))
        edges = dict(zip(soft, pairs, strict=False))
        if min(temperatures) <= 0:
            low, high = (ends[0] * float(np.exp(-k * steps[0])) for k in (2.2, 1.2))
            edges = {0.0: (low, high), **edges} if soft else {0.0: pairs[0]}
        return cls(edges=edges, soft=ends[0], high=ends[-1])

    def axis(self, title: str) -> Spec:
        """A logarithmic axis; hard labels have a name, and of many temperatures powers of ten."""
        soft = [t for t in self.edges if t > 0]
        tens = [t for t in soft if np.isclose(np.log10(t) % 1, [0, 1], atol=1e-6).any()]
        marks = tens if len(soft) > 6 and len(tens) > 1 else soft
        drawn = axis(title, min(low for low, _ in self.edges.values()), self.high, log=True)
        if 0 in self.edges:
            marks = [float(np.sqrt(np.prod(self.edges[0]))), *marks]
            drawn["axis"]["labelExpr"] = f"datum.value < {self.soft} ? 'hard' : datum.label"
        drawn["axis"].update(values=marks, grid=False)
        return drawn


def _cells(
    found: Mapping[tuple[float, float], float],
    teachers: _Spread,
    students: _Spread,
    ends: tuple[float, float],
    x: Spec,
    y: Spec,
) -> Spec:
    """A cell for each pair of temperatures, coloured by the square root of its gain."""
    values = []
    for (student, teacher), gain in sorted(found.items()):
        (x1, x2), (y1, y2) = teachers.edges[teacher], students.edges[student]
        size = np.sqrt(abs(gain) / ((ends[0] if gain < 0 else ends[1]) or 1.0))
        share = float(np.clip(0.5 + 0.5 * np.sign(gain) * size, 0, 1))
        place = {"x": x1, "x2": x2, "y": y1, "y2": y2}
        values.append({**place, "gain": round(gain, 4), "share": share})
    words = {
        0: f"{ends[0]:.3g} worse", 0.25: f"{ends[0] / 4:.3g} worse", 0.5: "as before",
        0.75: f"{ends[1] / 4:.3g} better", 1: f"{ends[1]:.3g} better",
    }  # fmt: skip
    return {
        "data": {"values": values},
        "mark": "rect",
        "encoding": {"x": {"field": "x", **x}, "x2": {"field": "x2"},
                     "y": {"field": "y", **y}, "y2": {"field": "y2"},
                     "color": {"field": "share", **_scale(CHANGE, words)},
                     "tooltip": {"field": "gain", "title": "points better"}},
    }  # fmt: skip
