"""What the sweep over a real network's temperatures stored is what the page says."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.special import lambertw

from acclimate.theory.many_points import slope

ROOT = Path(__file__).parents[2]
REPORT = runpy.run_path(str(ROOT / "benchmarks/temperatures.py"))
PLACE = REPORT["Place"].parse
SWEEP = json.loads((ROOT / "benchmarks/results/temperatures.json").read_text())
START = json.loads((ROOT / "benchmarks/results/temperatures_start.json").read_text())
PAGE = (ROOT / "docs/theory.md").read_text()
WORDS = " ".join(PAGE.split())


def changes(method: str, side: str) -> list[float]:
    return [
        REPORT["_change"](cell)
        for key, cell in SWEEP["cells"].items()
        if (place := PLACE(key)).method == method and place.side == side
    ]


def test_the_sweep_is_whole():
    assert SWEEP["settings"]["images"] == 10_000
    assert len(SWEEP["settings"]["temperatures"]) == 13
    assert len(SWEEP["cells"]) == 2 * 13 * (14 + 13)
    assert all(len(cell["after_epoch"]) == 2 for cell in SWEEP["cells"].values())


@pytest.mark.parametrize("table", REPORT["TABLES"])
def test_the_page_has_the_tables_of_the_stored_runs(table):
    assert table() in PAGE


def rounded(svg: str) -> str:
    """With five decimals: the last digits of a place depend on the version of NumPy."""
    return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.5f}", svg)


def test_the_figures_are_those_of_the_stored_runs():
    for name, svg in REPORT["figures"]().items():
        stored = (ROOT / "docs/figures" / name).read_text(encoding="utf-8")
        assert rounded(stored) == rounded(svg)
        assert f"figures/{name})" in PAGE


def test_nothing_is_worse_above_a_line_and_no_pseudo_label_helps_below():
    noticed = REPORT["NOTICED"]
    assert all(max(changes(method, "above")) < noticed for method in ("pseudo-labels", "entropy"))
    assert min(changes("pseudo-labels", "below")) > -noticed
    assert max(map(abs, changes("pseudo-labels", "on it"))) < 0.011  # no gradient


def test_the_columns_of_entropy_in_which_anything_is_worse():
    worse = {}
    for key, cell in SWEEP["cells"].items():
        _, method, student, teacher = PLACE(key)
        if method == "entropy" and REPORT["_change"](cell) > REPORT["NOTICED"]:
            worse.setdefault(teacher, []).append((student, REPORT["_change"](cell)))
    ((student, change),) = worse.pop(0.056234)
    assert (student, f"{change:+.2f}") == (0.01, "+0.51")
    assert worse.keys() == {5.62341, 10.0}
    assert all({s for s, _ in cells} >= {0.01, 0.562341} for cells in worse.values())
    assert "but for one of the corner (+0.51)" in WORDS


def test_what_the_page_says_of_the_unadapted_network():
    ends = {shift: [0, {}] for shift in START["shifts"]}
    for key, cell in SWEEP["cells"].items():
        found = ends[PLACE(key)[0]]
        found[0] += cell["after_epoch"][-1] > cell["source"]
        found[1] = cell
    (blur, a), (noise, b) = ends.values()
    assert f"{blur} cells on blur and {noise} on noise end even above *that*" in WORDS
    new, old = "batch_norm", "source"
    assert f"({a[new]:.1f} % on blur, {b[new]:.1f} % on noise)" in WORDS
    assert f"({a[old]:.1f} % and {b[old]:.1f} %)" in WORDS
    assert f"won {a[old] - a[new]:.1f} and {b[old] - b[new]:.1f} points" in WORDS
    above = sum(len(changes(method, "above")) for method in ("pseudo-labels", "entropy"))
    assert f"all {above} soft cells there" in WORDS


@pytest.mark.parametrize(("classes", "factor"), [(2, 1.28), (10, 2.10)])
def test_the_margin_beyond_which_entropy_pushes_outwards(classes, factor):
    critical = 1 + lambertw((classes - 1) / np.e).real
    assert critical == pytest.approx(factor, abs=0.005)
    teacher = 3.0
    for share, outwards in ((0.98, False), (1.02, True)):
        logits = np.zeros((classes, 1))
        logits[0] = share * critical * teacher
        pull = slope(logits, np.array(1 / 0.01), np.array(1 / teacher), stop_gradient=False)
        assert ((logits * pull).sum() > 0) == outwards


def test_what_the_page_says_of_the_start():
    blur, noise = START["shifts"].values()
    medians = [each["margins"]["to the mean of the others"][1] for each in (blur, noise)]
    assert f"{medians[0]:.1f} for blur and {medians[1]:.1f} for noise" in WORDS
    assert f"{medians[0] / 2.10:.1f} and {medians[1] / 2.10:.1f}" in WORDS
    flat = [each["flat at tau_t"] for each in (blur, noise)]
    assert f"τt = {flat[0]['0.01']:.1f} and {flat[1]['0.01']:.1f}" in WORDS
    for each in flat:
        assert each["0.316228"] == pytest.approx(each["0.01"], rel=0.002)  # τs is but a factor


def test_what_the_page_says_of_the_network_on_few_images():
    for shift in START["shifts"]:
        runs = [run for run in START["network"] if run["shift"] == shift]
        sizes = ", ".join(f"{run['size']:.2f}" for run in runs[:4])
        assert sizes in WORDS
        assert runs[4]["size"] == pytest.approx(
            runs[1]["size"], abs=0.005
        )  # lr/τs as in the second
