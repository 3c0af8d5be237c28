"""``acclimate theory``: what it writes, prints and refuses."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace

import pytest

from acclimate.cli import main
from acclimate.theory.settings import FIGURES, MAIN_FIGURE
from torch_free import run_without_torch

NAMES = ["phase", "2p-momentum", "2p-standard", "2p-weight", "trajectories", "field"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    room = "acclimate.report.theory"
    monkeypatch.setattr(f"{room}.QUICK", 12)
    monkeypatch.setattr(f"{room}.MAIN_FIGURE", replace(MAIN_FIGURE, steps=100))
    fewer = {k: tuple(replace(s, steps=100) for s in series) for k, series in FIGURES.items()}
    monkeypatch.setattr(f"{room}.FIGURES", fewer)


def test_page_and_figures(tmp_path, capfd):
    assert main(["theory", "--out", str(tmp_path / "a"), "--quick", "--figures"]) == 0
    out, err = capfd.readouterr()
    assert "panels: 100%" in err
    assert "theory.html" in out
    assert all(f"{name}.svg" in out for name in NAMES)
    expected = {"theory.html", *(f"{name}.{kind}" for name in NAMES for kind in ("svg", "png"))}
    assert {path.name for path in (tmp_path / "a").iterdir()} == expected


def test_the_same_call_writes_the_same_bytes(tmp_path, capfd):
    for folder in ("a", "b"):
        words = ["--figures", "phase", "field", "phase", "--quick", "--json"]
        assert main(["theory", "--out", str(tmp_path / folder), *words]) == 0
        told = json.loads(capfd.readouterr().out)
    figures = [f"{name}.{kind}" for name in ("phase", "field") for kind in ("svg", "png")]
    assert told["written"] == ["theory.html", *figures]
    hashes = [
        {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / f).iterdir()}
        for f in ("a", "b")
    ]
    assert hashes[0] == hashes[1]


def test_the_page_alone_needs_no_torch_and_no_simulation(tmp_path):
    done = run_without_torch(["theory", "--out", str(tmp_path), "--figures", "none", "--quiet"])
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["theory.html"]


def test_figures_need_the_extra_and_the_page_does_not(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("acclimate.report.charts.find_spec", lambda name: None)
    words = ["theory", "--out", str(tmp_path), "--quiet", "--figures"]
    assert main([*words, "trajectories"]) == 2
    assert "pip install 'acclimate[report]'; --figures none writes" in capfd.readouterr().err
    assert main([*words, "none"]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["theory.html"]


@pytest.mark.parametrize("place", ["file", "file/below", "\0"])
def test_a_place_that_cannot_be_written(tmp_path, capfd, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("taken")
    assert main(["theory", "--out", place, "--figures", "none"]) == 2
    assert re.search("acclimate: cannot (write|use)", capfd.readouterr().err)


def test_a_figure_nobody_knows(tmp_path, capfd):
    assert main(["theory", "--out", str(tmp_path / "a"), "--figures", "feild"]) == 2
    assert "unknown figure 'feild'; did you mean 'field'?" in capfd.readouterr().err
    assert not (tmp_path / "a").exists()


def test_none_goes_with_no_other_figure(tmp_path, capfd):
    assert main(["theory", "--out", str(tmp_path / "a"), "--figures", "none", "phase"]) == 2
    assert "expected 'none' alone or names, got none phase" in capfd.readouterr().err
    assert not (tmp_path / "a").exists()


def test_an_empty_name_is_not_the_current_folder(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["theory", "--out", "", "--figures", "none"]) == 2
    assert "got an empty name; '.' is the current folder" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
