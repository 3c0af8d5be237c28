"""The benchmark of the server: all servers answer the same requests, and the figures add up."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_servers_answer_and_are_compared(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    serve = importlib.import_module("serve")
    out = tmp_path / "serve.json"
    words = ["--seconds", "1", "--rounds", "1", "--clients", "4", "--out", str(out)]
    words += ["--servers", "plain", "frozen"]
    assert serve.main(words) == 0
    result = json.loads(out.read_text())
    assert [row["server"] for row in result["rows"]] == ["plain", "frozen"]
    for row in result["rows"]:
        assert row["not_answered"] == 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert row["cpu_ms_per_request"] > 0
    plain, frozen = (row["error_percent"] for row in result["rows"][:2])
    assert plain == pytest.approx(frozen, abs=15)  # the same model


def test_the_stored_result_is_what_the_page_says() -> None:
    rows = {
        row["server"]: row
        for row in json.loads((ROOT / "benchmarks/results/serve.json").read_text())["rows"]
    }
    cost = {name: row["cpu_ms_per_request"] for name, row in rows.items()}
    assert cost["frozen"] < cost["live"] < cost["plain"]
    assert cost["live"] / cost["frozen"] == pytest.approx(1.2, abs=0.1)
    assert rows["live"]["error_percent"] < rows["frozen"]["error_percent"] - 10
    assert sum(row["not_answered"] for row in rows.values()) == 0
