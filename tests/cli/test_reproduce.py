"""``acclimate reproduce``."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from acclimate.bench import Store
from acclimate.cli import main
from acclimate.paper.tables import find_tables, tables
from torch_free import run_without_torch

SMALL = ["--incomplete", "--images-per-shift", "8", "--severities", "5", "--shifts", "fog"]
MARK = "8 images a shift, severity 5 only, fog only, data sets with gaps allowed"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar").mkdir()
    images = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "cifar" / "cifar10-test.npz", images=images, labels=np.arange(16) % 10)
    once = {"epochs": 1, "optimizer.lr": 1e-3}
    (tmp_path / "choice.json").write_text(json.dumps({"ent": once, "rpl": once}))


def reproduce(*words: str) -> int:
    return main(["reproduce", *words])


def test_the_list_has_a_line_for_each_table(capfd):
    assert reproduce("--list") == 0
    lines = capfd.readouterr().out.splitlines()
    for table, line in zip(tables(), lines[2:], strict=False):
        assert line.startswith(f"{table.label} ")
    (total,) = (line.split() for line in lines if line.startswith("all "))
    assert total == ["all", "1,786", "0", "40", "0", "1,598", "148"]


def test_the_list_knows_what_is_available(capfd):
    found = None
    for root in ("cifar10=cifar", "cifar"):  # named, or looked for
        given = ["--root", root, "--incomplete"]
        assert reproduce("tbl:groupnorm", "--list", *given, "--json") == 0
        before, (found,) = found, json.loads(capfd.readouterr().out)
        assert before in (None, found)
    assert (found["cells"], found["can_run"], found["counted"]) == (12, 6, 3)
    assert any(words.startswith("imagenet-c:") for words in found["missing"])


def test_the_state_of_every_cell(capfd):
    assert reproduce("--status") == 0
    out = capfd.readouterr().out
    table, close, cells = out.split("\n\n")
    assert (len(table.splitlines()), len(cells.splitlines())) == (2 + 50 + 1, 2 + 1786)
    assert close == "No number is measured."
    assert reproduce("--status", "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert len(found["cells"]) == sum(each["cells"] for each in found["tables"]) == 1786
    for state in ("measured", "counted", "can run", "needs data", "not measurable"):
        of_cells = sum(cell["state"] == state for cell in found["cells"])
        assert of_cells == sum(each[state.replace(" ", "_")] for each in found["tables"])
    reasons = {cell["reason"] for cell in found["cells"] if cell["state"] != "counted"}
    assert "" not in reasons
    assert {"imagenet-c", "a number of Niu et al. 2022"} <= reasons


def test_what_ran_is_measured_and_what_could_is_told_apart(capfd):
    given = ["--root", "cifar10=cifar", "--incomplete", "--choice", "choice.json", "--quiet"]
    only = ["--rows", "WRN-26-1-BN"]
    ran = ["--images-per-shift", "8", "--columns", "w/o adapt", "--device", "cpu"]
    assert reproduce("groupnorm", *only, *given, *ran) == 0
    capfd.readouterr()
    assert reproduce("groupnorm", *only, *given, "--status") == 0
    out = capfd.readouterr().out
    (line,) = (line for line in out.splitlines() if line.startswith("all "))
    assert line.split() == ["all", "4", "1", "1", "2", "0", "0"]
    (measured,) = (line for line in out.splitlines() if "w/o adapt" in line)
    assert "8 of 10,000 images a shift" in measured
    assert "are of fewer images" in out
    assert reproduce("groupnorm", "--status", "--store", "no.db") == 2
    assert "no such store: no.db" in capfd.readouterr().err


@pytest.mark.parametrize("form", ["markdown", "latex"])
def test_states_in_other_forms(capfd, form):
    assert reproduce("tab:mapping", "--status", "--format", form) == 0
    out = capfd.readouterr().out
    assert ("| tab:mapping | ImageNet-D classes | 3 |" if form == "markdown" else "tabular") in out


def test_a_dry_run_of_all_of_it_with_nothing_available(capfd):
    assert reproduce("tbl:*", "--dry-run", "--json") == 0
    shown = json.loads(capfd.readouterr().out)
    rows = [row for table in shown["tables"] for row in table["rows"]]
    assert len(rows) == sum(len(table.cells) for table in find_tables("tbl:*"))
    assert all(row["lacks"] or row["measured"] is not None for row in rows)
    assert shown["estimate"]["words"] == "nothing to run"


def test_a_dry_run_says_how_long_and_runs_nothing(capfd, tmp_path):
    given = ["--root", "cifar10=cifar", *SMALL]
    assert reproduce("groupnorm", *given, "--dry-run") == 0
    out = capfd.readouterr().out
    assert "6 jobs to run on 48 images, about" in out.splitlines()[0]
    assert "can run, 1 job " in out
    assert not (tmp_path / "results.db").exists()


def test_a_small_version_from_the_beginning_to_the_end(capfd):
    given = ["--root", "cifar10=cifar", *SMALL, "--choice", "choice.json", "--quiet"]
    assert reproduce("groupnorm", *given, "--device", "cpu", "--json") == 0
    shown = json.loads(capfd.readouterr().out)
    assert (shown["ran"]["done"], shown["small"]["words"]) == (6, MARK)
    (table,) = shown["tables"]
    status = [row["status"] for row in table["rows"]]
    assert status == (["counted"] + ["measured"] * 3) * 2 + ["counted"] + ["missing"] * 3
    for row in table["rows"]:
        if row["status"] == "measured":
            assert row["difference"] == pytest.approx(row["measured"] - row["published"])
            assert (row["small"], row["images"]) == (MARK, 8)
            assert any("made on the fly" in note for note in row["notes"])

    # What is in the store is not run again, and times come from it.
    assert len(Store("results.db")) == 6
    assert reproduce("groupnorm", *given) == 0
    out = capfd.readouterr().out
    assert out.startswith("nothing to run")
    lines = [line for line in out.splitlines() if line.startswith(("WRN-", "ResNet50"))]
    assert len(lines) == 12
    assert all(line.endswith(MARK) for line in lines)
    assert "3 counted, 6 measured, 3 missing" in out


def measured_on(capfd, *words: str) -> list[float]:
    given = ["--root", "cifar10=cifar", *SMALL, "--choice", "choice.json", "--quiet"]
    only = ["--rows", "WRN-26-1-BN", "--columns", "w/o adapt", "ENT"]
    assert reproduce("groupnorm", *given, *only, "--device", "cpu", "--json", *words) == 0
    shown = json.loads(capfd.readouterr().out)
    assert (shown["ran"]["done"], shown["ran"]["failed"]) == (2, [])
    return [row["measured"] for row in shown["tables"][0]["rows"]]


@pytest.mark.skipif(find_spec("ray") is None, reason="needs pip install 'acclimate[ray]'")
def test_on_a_cluster_the_numbers_are_the_same(capfd):
    import ray

    here = measured_on(capfd, "--engine", "inline", "--store", "here.db")
    try:
        on_ray = ["--engine", "ray", "--workers", "1", "--store", "ray.db"]
        assert measured_on(capfd, *on_ray) == here
        assert ray.is_initialized()  # it did run there
    finally:
        ray.shutdown()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--engine inline --workers 2", "expected one worker for --engine inline"),
        ("--workers 0", "expected workers >= 1"),
        ("--address auto", "--address is for --engine ray"),
        ("--engine slurm --slurm timeout_min", "expected --slurm NAME=VALUE"),
    ],
)
def test_engines_are_asked_for_in_the_words_of_bench(capfd, words, message):
    given = ["--root", "cifar10=cifar", *SMALL, "--device", "cpu"]
    assert reproduce("groupnorm", *given, *words.split()) == 2
    assert message in capfd.readouterr().err


def test_only_some_rows_and_columns(capfd):
    assert reproduce("table-2", "--rows", "WRN-26-1-*", "--columns", "parameters", "--json") == 0
    (table,) = json.loads(capfd.readouterr().out)["tables"]
    assert [row["row"] for row in table["rows"]] == ["WRN-26-1-GN", "WRN-26-1-BN"]
    assert reproduce("table-2", "--rows", "WRN-27*") == 2
    assert "no row is called WRN-27*; there are: WRN-28-10" in capfd.readouterr().err


@pytest.mark.parametrize("form", ["markdown", "latex"])
def test_other_forms(capfd, form):
    assert reproduce("tab:mapping", "--format", form) == 0
    out, err = capfd.readouterr()
    assert ("| ImageNet-D classes | 3 |" if form == "markdown" else r"\begin{tabular}") in out
    assert "nothing to run" in err
    assert "nothing to run" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tbl:tabel-2"], "did you mean 'tbl:table-2'"),
        ([], "acclimate reproduce --list has them"),
        (["table-2", "--root", "cifar10=/nowhere"], "expected cifar10 in /nowhere"),
        (["table-2", "--root", "cifar=cifar"], "unknown data set 'cifar'; did you mean"),
        (["table-2", "--root", "nowhere"], "there is no folder nowhere; check --root"),
        (["table-2", "--root", "cifar10="], "expected --root NAME=DIR, got 'cifar10='"),
        (["table-2", "--weights", "acclimate:wrn-28-10=no.pt"], "no weights file no.pt"),
        (["table-2", "--severities", "6"], "expected severities of 1 to 5, got 6"),
        (["table-2", "--images-per-shift", "0"], "expected --images-per-shift >= 1, got 0"),
        (["table-2", "--shifts", "fogg"], "did you mean 'fog'"),
        (["table-2", "--choice", "no.json"], "check --choice"),
    ],
)
def test_mistakes_are_said_plainly(capfd, words, message):
    assert reproduce(*words) == 2
    assert message in capfd.readouterr().err


@pytest.mark.parametrize("table", ["table-9", "tbl:ece"])
def test_a_folder_without_the_data_is_said_and_so_is_what_is_missing(capfd, tmp_path, table):
    assert reproduce(table, "--root", str(tmp_path), "--dry-run") == 0
    out, err = capfd.readouterr()
    assert "none of the data sets that are needed is in" in err
    assert "missing" in out
    assert "then --root imagenet-c=DIR" in out


def test_an_empty_root_is_said_in_a_line(capfd, tmp_path):
    (tmp_path / "empty").mkdir()
    assert reproduce("groupnorm", "--root", "cifar10=empty", "--dry-run") == 0
    assert "cifar10: expected test_batch.bin of cifar10 in empty" in capfd.readouterr().out


def test_help_needs_no_torch():
    assert "--images-per-shift" in run_without_torch(["reproduce", "--help"]).stdout


def test_readmes_table_needs_no_file_of_the_repository(capfd):
    given = ["--root", "cifar10=cifar", *SMALL, "--quiet", "--device", "cpu"]
    only = ["--rows", "wrn-26-2-gn", "--columns", "unadapted", "hard"]
    assert reproduce("readme:cifar10-c-5", *given, *only) == 0
    out = capfd.readouterr().out
    assert "chosen by this project on hold-out corruptions" in out
    assert "2 measured; 2 jobs run" in out
    ran = {result.job.recipe: dict(result.job.options) for result in Store("results.db").results()}
    assert ran == {"none": {}, "hard": {"optimizer.lr": 0.0003, "epochs": 3}}
