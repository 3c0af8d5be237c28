"""The soak: a short one with everything in it, and what the stored ones say."""

from __future__ import annotations

import importlib
import json
import socket
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.timeout(240)
def test_a_short_soak_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    soak = importlib.import_module("soak")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
    out = tmp_path / "soak.json"
    words = ["--seconds", "3", "--clients", "16", "--kills", "1", "--pause", "0.1"]
    assert soak.main([*words, "--port", port, "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    assert (result["lost"], result["wrong"]) == (0, {})
    assert result["retried"] > 0  # while it was down
    assert [each["served"] == each["written"] for each in result["kills"]] == [True]
    assert set(result["statuses"]["fog"]) == {"200"}
    assert set(result["statuses"]["NaN"]) == {"422"}
    assert "| requests lost | 0 |" in soak.markdown(result)


def test_nothing_was_lost_in_the_stored_soaks() -> None:
    for name, kills in (("soak", 20), ("soak_ray", 8)):
        result = json.loads((RESULTS / f"{name}.json").read_text())
        assert len(result["kills"]) == kills
        assert (result["lost"], result["wrong"]) == (0, {})
        assert all(each.get("served") == each.get("written") for each in result["kills"])
        assert result["memory_mib"]["growth"] < 20
        assert result["answered"] > 1000
