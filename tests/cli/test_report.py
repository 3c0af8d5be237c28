"""``acclimate report``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from acclimate.bench import Result, Store
from acclimate.cli import main
from acclimate.data.digits import digits
from acclimate.report import charts
from report_store import full_store, result


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return str(full_store(tmp_path_factory.mktemp("store") / "sweep.db").path)


def test_a_page_figures_and_tables(full, capfd):
    assert main(["report", full, "--figures", "fig", "--tables", "tab"]) == 0
    out = capfd.readouterr().out
    assert "report.html" in out
    assert "needs no server" in out
    assert Path("report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert Path("fig/reliability-1.svg").read_text().startswith("<svg")
    assert Path("fig/reliability-1.png").read_bytes().startswith(b"\x89PNG")
    assert r"\toprule" in Path("tab/headline.tex").read_text()
    assert Path("tab/by-corruption.md").read_text().startswith("**Top-1 error %")


@pytest.mark.parametrize(
    ("out", "page"),
    [
        ("page-0.5", "page-0.5.html"),
        ("kept", "kept/report.html"),
        ("new/", "new/report.html"),
    ],
)
def test_a_page_has_the_ending_that_browsers_go_by(full, capfd, here, out, page):
    (here / "kept").mkdir()
    assert main(["report", full, "--out", out]) == 0
    assert f"Open {page} in a browser" in capfd.readouterr().out
    assert (here / page).read_text().startswith("<!doctype html>")


def test_json_says_what_was_written(full, capfd):
    words = ["--where", "model=*augmix*", "--tables", "tab", "--out", "deep/er/page.html"]
    assert main(["report", full, *words, "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert said["written"][0] == said["out"] == "deep/er/page.html"
    assert all(Path(path).stat().st_size for path in said["written"])
    assert said["bytes"] == Path("deep/er/page.html").stat().st_size
    assert "only model=*augmix*" in said["facts"]


def refused(capfd, *words: str) -> str:
    assert main(["report", *words]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("acclimate: ")
    assert not Path("report.html").exists()
    return captured.err


def test_bad_input_is_refused_in_words(full, capfd):
    Store("empty.db")
    assert "empty.db has no results; acclimate bench fills it" in refused(capfd, "empty.db")
    store = Store("failed.db")
    job = result(model="m", dataset="d", recipe="ent").job
    store.add(Result.failed(job, "weights are missing"))
    err = refused(capfd, "failed.db")
    assert "1 failed job, the first because: weights are missing" in err
    Path("notes.txt").write_text("not a store")
    assert "notes.txt" in refused(capfd, "notes.txt")
    assert "nowhere.db" in refused(capfd, "nowhere.db")
    assert "no results with model=none-such" in refused(capfd, full, "--where", "model=none-such")
    assert "unknown column" in refused(capfd, full, "--where", "nope=1")


def test_figures_need_the_extra_and_the_page_does_not(full, capfd, monkeypatch):
    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    err = refused(capfd, full, "--figures", "fig")
    assert "pip install 'acclimate[report]'; without --figures" in err
    assert main(["report", full]) == 0


def test_what_cannot_be_written_is_said(full, capfd, here):
    Path("file").write_text("")
    assert "cannot write 'file/page.html'" in refused(capfd, full, "--out", "file/page.html")
    assert "the store" in refused(capfd, full, "--out", full)
    assert len(Store(full, create=False))


def test_the_help_needs_no_torch():
    code = (
        "import sys; from acclimate.cli.parser import build_parser; build_parser(); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_from_a_real_sweep_to_the_page(capfd):
    images, labels = digits("held-out")
    large = np.pad(np.kron(images[:160], np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
    np.savez("mnist-test.npz", images=large, labels=labels[:160])
    words = ["--models", "acclimate:digits", "--datasets", "mnist", "--store", "sweep.db"]
    words += ["--root", ".", "--incomplete", "--device", "cpu", "--quiet", "--shifts"]
    words += ["cifar/fog:2", "cifar/spatter:2", "--recipes", "none", "bn", "ent"]
    words += ["--set", "ent:epochs=2", "--set", "ent:optimizer.lr=1e-3,1"]
    assert main(["bench", *words]) == 0
    capfd.readouterr()
    assert main(["report", "sweep.db", "--json", "--figures", "fig"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert said["facts"][0] == "8 results"
    drawn = {Path(path).stem.rstrip("-0123456789") for path in said["written"][1:]}
    assert {"error-over-epochs", "learning-rate-by-epoch", "reliability", "class-balance"} <= drawn
    page = Path("report.html").read_text(encoding="utf-8")
    for words_said in ("acclimate:digits", "Recipes in full", "best of 2 on hold-out corruptions"):
        assert words_said in page
