"""What the benchmark stored is what the page says."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from acclimate.theory.settings import BOUNDARY

ROOT = Path(__file__).parents[2]
STORED = json.loads((ROOT / "benchmarks/results/theory.json").read_text())
PAGE = (ROOT / "docs/theory.md").read_text()


def test_it_ran_with_the_fixed_settings():
    assert STORED["settings"] == json.loads(json.dumps(asdict(BOUNDARY)))


def test_the_edge_is_where_it_was_claimed():
    for row in STORED["boundary"].values():
        claimed, within = row["columns claimed"], row["columns claimed and within one cell"]
        assert claimed == within > 50
        assert f"| {within} of {claimed} | {row['largest deviation claimed']:.2f} cells |" in PAGE


def test_the_table_of_learning_rates():
    for figure, methods in STORED["figures"].items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{figure}` ("))
        shown = [cell.strip() for cell in row.split("|")[2:-1]]
        spans = [r["within one cell for tau_t"] for rows in methods.values() for r in rows]
        for words, span in zip(shown, spans, strict=True):
            assert (words == "none") is (span is None)
            if span is not None:
                assert [float(t) for t in words.split(" – ")] == pytest.approx(span, rel=0.02)


def test_wide_cells():
    rows = STORED["wide cells"].values()
    assert [r["columns claimed"] for r in rows] == [38, 19]
    assert [r["columns claimed and within one cell"] for r in rows] == [35, 17]


def test_no_run_collapses_or_flips_above_the_line():
    runs = [r for figure in STORED["figures"].values() for rows in figure.values() for r in rows]
    for row in [*STORED["boundary"].values(), *runs]:
        assert row["collapsed above the line"] == row["flipped above the line"] == 0
        assert row["cells unlike the flow, steps not too long"] <= 2


def test_the_table_of_robust_labels():
    for rows in STORED["robust"].values():
        for row in rows:
            if row["q"] == 1:
                assert row["share collapsed"] == 0
            else:
                within = row["columns claimed and within one cell"]
                assert f"{within} of {row['columns claimed']}" in PAGE


def test_many_points_disagree_only_at_the_line():
    rows = STORED["many points"]
    assert not any(r["unlike the rule, more than one cell away"] for r in rows)
    near, cells = sum(r["unlike the rule"] for r in rows), sum(r["cells"] for r in rows)
    assert f"{near} of {cells:,}" in PAGE
