"""The theory's figures show what was simulated, and the lines where the proposition has them."""

from __future__ import annotations

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from acclimate.errors import AcclimateError
from acclimate.report.charts import CHANGE, ERROR, svg
from acclimate.report.theory import (
    field_figure,
    phase_figure,
    real_network_figure,
    shade,
    trajectory_figure,
)
from acclimate.theory.boundary import run_grid
from acclimate.theory.settings import FIGURES, MAIN_FIGURE, METHODS

SMALL = replace(MAIN_FIGURE, count=12, steps=200)


def values(panel, layer):
    return panel["layer"][layer]["data"]["values"]


def image(panel):
    url = values(panel, 0)[0]["url"]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))))


def test_the_phase_diagram_is_the_simulated_error():
    panels = phase_figure([SMALL], title="small")["concat"]
    for panel, stop_gradient in zip(panels, METHODS.values(), strict=True):
        error = run_grid(SMALL, stop_gradient=stop_gradient).error
        np.testing.assert_array_equal(image(panel), shade(error[::-1], ERROR))


def test_a_series_has_a_row_for_each_method():
    series = [replace(s, count=4, steps=20) for s in FIGURES["2p-momentum"]]
    done = []
    spec = phase_figure(series, title="series", step=lambda: done.append(1))
    assert len(spec["concat"]) == len(done) == 6
    assert spec["columns"] == 3
    assert {"pseudo-labels, lr 0.01", "entropy, lr 1"} <= {p["title"] for p in spec["concat"]}


def test_the_line_is_where_the_proposition_has_it():
    for panel, slope in zip(phase_figure([SMALL], title="small")["concat"], (1, 0.5), strict=True):
        (low, high) = values(panel, -1)
        assert (low["x"], high["x"]) == (SMALL.low, SMALL.high)
        assert low["y"] == pytest.approx(slope * low["x"])
        assert high["y"] == pytest.approx(slope * high["x"])


@pytest.mark.parametrize("draw", [trajectory_figure, field_figure])
def test_paths_are_drawn_the_same_every_time(draw):
    spec = draw()
    assert spec == draw()
    drawn = svg(spec)
    assert drawn == svg(spec)
    assert f"<title>{spec['title']}</title>" in drawn
    assert "collapse" in drawn or "vanish" in drawn


def test_outputs_over_time_vanish_below_the_line_and_leave_above():
    ends = []
    for panel in trajectory_figure()["concat"]:
        paths = {}
        for each in values(panel, 0):
            paths.setdefault(each["line"], []).append(each["y"])
        assert all(abs(path[0] - 0.5) < 0.15 for path in paths.values())
        ends += [path[-1] for path in paths.values()]
    gone = [abs(end) < 0.01 for end in ends]
    assert gone == [True] * 4 + [False] * 2 + [True] * 2 + [False] * 4
    assert all(end > 2 for end, vanished in zip(ends, gone, strict=True) if not vanished)


def test_arrows_lead_away_from_zero_above_the_line_and_to_it_below():
    outward = []
    for panel in field_figure()["concat"]:
        arrows = values(panel, 0)
        x, y, turn = (np.array([arrow[name] for arrow in arrows]) for name in ("x", "y", "turn"))
        outward.append(x * np.sin(np.radians(turn)) + y * np.cos(np.radians(turn)) > 0)
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


def gains(spec):
    return [each["gain"] for panel in spec["concat"] for each in values(panel, 0)]


def test_a_real_network_improves_above_the_line_and_degrades_below():
    spec = real_network_figure(real())
    assert gains(spec) == [30, 30, -20, 30, 30, 30] * 2
    assert all(len(panel["layer"]) == 1 + 2 * 2 for panel in spec["concat"])  # both lines in both
    assert spec["title"] == "Error of the network against the source's, in points, mean of 2 shifts"
    drawn = svg(spec)
    assert all(f">{words}</text>" in drawn for words in ("hard", "0.1", "1", "as before"))


def test_another_baseline_epoch_and_cells_that_are_missing():
    run = real()
    del run["cells"]["cifar/spatter:5 entropy 0.1 0"]
    for shift in ("gaussian_blur", "spatter"):
        del run["cells"][f"cifar/{shift}:5 pseudo-labels 1 1"]
    spec = real_network_figure(run, baseline="batch_norm", epoch=0)
    assert gains(spec) == [-15] * 11
    title = "Error of the network against new statistics alone, in points, mean of 1 to 2 shifts"
    assert spec["title"] == title


def test_hard_labels_stand_apart_and_no_line_runs_through_them():
    panel = real_network_figure(real())["concat"][0]
    hard, first = values(panel, 0)[:2]
    assert first["x"] > 2 * hard["x2"]
    assert {values(panel, layer)[0]["x"] for layer in range(1, 5)} == {first["x"]}


def test_a_gain_of_a_point_is_seen_beside_a_collapse():
    run = {"cells": {f"s entropy 1 {t}": cell(e) for t, e in ((1, 39.0), (2, 90.0), (3, 40.0))}}
    spec = real_network_figure(run)
    (panel,) = spec["concat"]
    assert [each["share"] for each in values(panel, 0)] == [1.0, 0.0, 0.5]
    assert panel["layer"][0]["encoding"]["color"]["scale"]["range"] == list(CHANGE)
    assert all(words in str(panel) for words in ("50 worse", "12.5 worse", "1 better"))
    wider = str(real_network_figure(run, ends=(100, 4)))
    assert all(words in wider for words in ("100 worse", "4 better"))


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
