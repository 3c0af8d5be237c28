"""The theory's figures show what was simulated, and the lines where the proposition has them."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from acclimate.errors import AcclimateError
from acclimate.report.colours import CHANGE, ERROR, shade
from acclimate.report.path_figures import field_figure, trajectory_figure
from acclimate.report.phase_figures import METHODS, phase_figure, real_network_figure
from acclimate.theory.boundary import run_grid
from acclimate.theory.settings import FIGURES, MAIN_FIGURE

NS = "{http://www.w3.org/2000/svg}"
SMALL = replace(MAIN_FIGURE, count=12, steps=200)


def words(svg: str) -> set[str]:
    return {node.text for node in ET.fromstring(svg).iter(f"{NS}text")}


def pictures(svg: str) -> list[np.ndarray]:
    images = ET.fromstring(svg).iter(f"{NS}image")
    files = [io.BytesIO(base64.b64decode(i.get("href").split(",")[1])) for i in images]
    return [np.asarray(Image.open(file)) for file in files]


def test_the_phase_diagram_is_the_simulated_error():
    panels = pictures(phase_figure([SMALL], title="small"))
    for panel, stop_gradient in zip(panels, METHODS.values(), strict=True):
        error = run_grid(SMALL, stop_gradient=stop_gradient).error
        np.testing.assert_array_equal(panel, shade(error[::-1], ERROR))


def test_a_series_has_a_row_for_each_method():
    series = [replace(s, count=4, steps=20) for s in FIGURES["2p-momentum"]]
    done = []
    svg = phase_figure(series, title="series", step=lambda: done.append(1))
    assert len(pictures(svg)) == len(done) == 6
    assert {"pseudo-labels, lr 0.01", "entropy, lr 1"} <= words(svg)


def test_the_line_is_where_the_proposition_has_it():
    root = ET.fromstring(phase_figure([SMALL], title="small"))
    lines = [n.get("points") for n in root.iter(f"{NS}polyline") if n.get("stroke") == "#ffffff"]
    assert lines[0] == "0,230 230,0"  # τs = τt: from corner to corner
    halved = 230 * np.log(2) / np.log(10 / 1e-3)
    assert lines[1] == f"0,{230 + halved:.2f} 230,{halved:.2f}"


@pytest.mark.parametrize("draw", [trajectory_figure, field_figure])
def test_paths_are_drawn_the_same_every_time(draw):
    svg = draw()
    assert svg == draw()
    assert "collapse" in svg or "vanish" in svg
    assert len(list(ET.fromstring(svg).iter(f"{NS}polyline"))) >= 12


def test_outputs_over_time_vanish_below_the_line_and_leave_above():
    lines = ET.fromstring(trajectory_figure()).iter(f"{NS}polyline")
    heights = [[float(p.split(",")[1]) for p in n.get("points").split()] for n in lines]
    zero, start = 208, 156  # of 260 pixels for -0.5 to 2
    assert all(abs(h[0] - start) < 15 for h in heights)
    gone = [abs(h[-1] - zero) < 1 for h in heights]
    assert gone == [True] * 4 + [False] * 2 + [True] * 2 + [False] * 4
    assert all(h[-1] < 0 for h, vanished in zip(heights, gone, strict=True) if not vanished)


def test_arrows_lead_away_from_zero_above_the_line_and_to_it_below():
    paths = [n.get("d") for n in ET.fromstring(field_figure()).iter(f"{NS}path")]
    fields = [d for d in paths if len(d) > 1000]
    outward = []
    for field in fields:
        shafts = re.findall(r"M(\S+) (\S+?)l(\S+) (\S+?)l", field)
        x, y, dx, dy = np.array(shafts, dtype=float).T
        outward.append((x + dx / 2 - 130) * dx + (y + dy / 2 - 130) * dy > 0)
    assert [o.mean() for o in outward[:3]] == [1, 0, 1]
    assert 0 < outward[3].mean() < 1  # entropy below its line: to zero only from near by


def cell(after: float) -> dict[str, object]:
    return {"source": 40.0, "batch_norm": 20.0, "after_epoch": [35.0, after]}


def real(temperatures: tuple[float, ...] = (0.0, 0.1, 1.0)) -> dict[str, object]:
    cells = {
        f"cifar/{shift}:5 {method} {s:g} {t:g}": cell(60.0 if s < t else 10.0)
        for shift in ("gaussian_blur", "spatter")
        for method in METHODS
        for s in (0.1, 1.0)
        for t in temperatures
    }
    return {"settings": {"temperatures": list(temperatures)}, "cells": cells}


def test_a_real_network_improves_above_the_line_and_degrades_below():
    svg = real_network_figure(real())
    root = ET.fromstring(svg)
    values = [t.text for r in root.iter(f"{NS}rect") for t in r.iter(f"{NS}title")]
    assert values == ["30", "30", "-20", "30", "30", "30"] * 2
    lines = [n for n in root.iter(f"{NS}polyline") if n.get("stroke") == "#ffffff"]
    assert len(lines) == 4  # both lines in both panels
    title = "Error of the network against the source's, in points, mean of 2 shifts"
    assert {"hard", "0.1", "1", title} <= words(svg)


def test_another_baseline_epoch_and_cells_that_are_missing():
    run = real()
    del run["cells"]["cifar/spatter:5 entropy 0.1 0"]
    for shift in ("gaussian_blur", "spatter"):
        del run["cells"][f"cifar/{shift}:5 pseudo-labels 1 1"]
    svg = real_network_figure(run, baseline="batch_norm", epoch=0)
    rects = ET.fromstring(svg).iter(f"{NS}rect")
    assert [t.text for r in rects for t in r.iter(f"{NS}title")] == ["-15"] * 11
    title = "Error of the network against new statistics alone, in points, mean of 1 to 2 shifts"
    assert title in words(svg)


def test_hard_labels_stand_apart_and_no_line_runs_through_them():
    root = ET.fromstring(real_network_figure(real()))
    panel = next(n for n in root.iter(f"{NS}svg") if n is not root)
    rects = [r for r in panel.iter(f"{NS}rect") if r.find(f"{NS}title") is not None]
    hard, first = (float(r.get("x")) for r in rects[:2])
    assert first > hard + float(rects[0].get("width")) + 10
    starts = [n.get("points").split(",")[0] for n in panel.iter(f"{NS}polyline")]
    assert {float(s) for s in starts} == {first}


def test_a_gain_of_a_point_is_seen_beside_a_collapse():
    run = {"cells": {f"s entropy 1 {t}": cell(e) for t, e in ((1, 39.0), (2, 90.0), (3, 40.0))}}
    svg = real_network_figure(run)
    rects = [r for r in ET.fromstring(svg).iter(f"{NS}rect") if r.find(f"{NS}title") is not None]
    assert [r.get("fill") for r in rects] == [CHANGE[-1], CHANGE[0], CHANGE[2]]
    told = {"50 worse", "12.5 worse", "as before", "1 better", "student temperature τs"}
    assert told <= words(svg)
    assert {"100 worse", "4 better"} <= words(real_network_figure(run, ends=(100, 4)))


@pytest.mark.parametrize(
    "cells",
    [
        {"shift entropy one 0.1": cell(3.0)},
        {"shift entropy 1 0.1": {"source": 3.0}},
        {"shift entropy 1 0.1": {"source": 3.0, "after_epoch": []}},
        {"entropy": cell(3.0)},
        {"shift other 1 0.1": cell(3.0)},
        {},
    ],
)
def test_cells_that_cannot_be_read_are_refused(cells):
    with pytest.raises(AcclimateError, match="expected"):
        real_network_figure({"cells": cells})
