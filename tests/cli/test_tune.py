"""``acclimate tune``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from acclimate.bench import Store
from acclimate.cli import main
from acclimate.data.digits import digits

pytestmark = pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")

MODEL = "acclimate:digits"
WHAT = ["--models", MODEL, "--datasets", "mnist", "--recipes", "ent"]
WHERE = ["--root", ".", "--incomplete", "--device", "cpu", "--quiet", "--store", "tune.db"]
SEARCH = ["--set", "optimizer.lr=1e-1,1e30", "--epochs", "2", "--severities", "3"]
SHIFTS = ["--shifts", "cifar/spatter", "cifar/saturate"]


def tune(*words: str) -> int:
    return main(["tune", *WHAT, *WHERE, *words])


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A folder with images, and a search that has been run once for all tests."""
    folder = tmp_path_factory.mktemp("swept")
    images, labels = digits("held-out")
    large = np.pad(np.kron(images[:64], np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
    np.savez(folder / "mnist-test.npz", images=large, labels=labels[:64])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert tune(*SEARCH, *SHIFTS, "--out", "choice.json") == 0
    return folder


@pytest.fixture(autouse=True)
def here(swept, tmp_path, monkeypatch):
    shutil.copytree(swept, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def test_the_choice_is_what_the_store_says_is_best(capfd):
    assert tune(*SEARCH, *SHIFTS, "--json") == 0
    record = json.loads(capfd.readouterr().out)
    assert record["choice"] == json.loads(Path("choice.json").read_text(encoding="utf-8"))
    assert record["failed"] == []
    chosen = record["choice"][MODEL]["ent"]
    runs = [r for r in Store("tune.db").results() if dict(r.job.options)["optimizer.lr"] == 0.1]
    means = [sum(r.after_epoch(n) for r in runs) / len(runs) for n in (1, 2)]
    assert len(runs) == 2
    assert chosen["dev_error"] == pytest.approx(min(means))
    assert chosen["options"] == {"optimizer.lr": 0.1, "epochs": 1 + means.index(min(means))}
    assert chosen["chosen_on"] == ["mnist cifar/saturate:3", "mnist cifar/spatter:3"]
    assert chosen["selection"] == "dev"
    assert chosen["candidates"] == 2  # the other rate diverged
    assert chosen["searched"] == {"epochs": [1, 2], "optimizer.lr": [0.1, 1e30]}
    worst = [cell for cell in record["sensitivity"][0]["cells"] if cell["lr"] > 1]
    assert [cell["diverged"] for cell in worst] == [0, 2, 2]


def test_the_table_and_the_choice_for_people_and_nothing_run_twice(capfd):
    assert tune(*SEARCH, *SHIFTS) == 0
    out = capfd.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert ["epoch", "lr", "0.1", "lr", "1e+30"] in lines
    assert {tuple(line[:1] + line[2:]) for line in lines} >= {("1", "div"), ("2", "div")}
    assert "chosen: optimizer.lr=0.1 epochs=" in out
    assert "at the edge of what was searched" in out
    assert "0 run, 4 done before, 0 failed" in out
    assert "oracle" not in out


def test_bench_takes_the_choice(capfd):
    words = ["bench", *WHAT, *WHERE, "--recipes", "none", "ent", "--choice", "choice.json"]
    words += ["--shifts", "cifar/fog:2", "--dry-run", "--json"]
    assert main(words) == 0
    chosen = json.loads(Path("choice.json").read_text())[MODEL]["ent"]["options"]
    first = json.loads(capfd.readouterr().out)["first"]
    assert [job.get("options", {}) for job in first] == [{}, chosen]
    assert main([*words, "--recipes", "rpl"]) == 2
    assert "choice.json has no choice for rpl" in capfd.readouterr().err


def test_without_labels_and_what_that_costs(capfd):
    assert tune(*SEARCH, *SHIFTS, "--select", "label-free", "--out", "free.json") == 0
    entry = json.loads(Path("free.json").read_text())[MODEL]["ent"]
    assert list(entry["by_shift"]) == ["mnist cifar/saturate:3", "mnist cifar/spatter:3"]
    scores = {r.job.shift: r.record.scores for r in Store("tune.db").results()
              if dict(r.job.options)["optimizer.lr"] == 0.1}  # fmt: skip
    for name, each in entry["by_shift"].items():
        assert each["score"] == max(scores[name.removeprefix("mnist ")])
    dev = json.loads(Path("choice.json").read_text())[MODEL]["ent"]
    assert entry["labelled"]["options"] == dev["options"]
    assert entry["regret"] == pytest.approx(entry["error"] - dev["dev_error"])
    assert "label-free" in entry["selection"]
    assert "regret:" in capfd.readouterr().out


def test_the_report_has_the_search_the_choice_and_the_regret(capfd):
    assert tune(*SEARCH, *SHIFTS, "--select", "label-free", "--out", "free.json") == 0
    words = ["bench", *WHAT, *WHERE, "--choice", "choice.json", "--shifts", "cifar/fog:3"]
    assert main(words) == 0
    files = ["--choice", "choice.json", "--choice", "free.json"]
    words = ["report", "tune.db", *files, "--tables", "tab"]
    assert main(words) == 0
    capfd.readouterr()
    page = Path("report.html").read_text(encoding="utf-8")
    assert "Choice of options" in page
    assert "chosen on 2 hold-out shifts, from 2 candidates (choice.json)" in page
    assert "2 learning rates (0.1, 1e+30), says choice.json and free.json" in page
    regret = json.loads(Path("free.json").read_text())[MODEL]["ent"]["regret"]
    (row,) = [line for line in Path("tab/regret.md").read_text().splitlines() if MODEL in line]
    assert row.endswith(f"| {regret:+.2f} |")
    assert "the choice on hold-out corruptions (choice.json)" in row
    assert main(["report", "tune.db", "--choice", "nowhere.json"]) == 2
    assert "cannot read nowhere.json" in capfd.readouterr().err


def test_test_data_is_refused_unless_it_is_marked(capfd):
    fog = [*SEARCH[:1], "optimizer.lr=0.1", "--epochs", "1", "--shifts", "cifar/fog:3"]
    assert tune(*fog) == 2
    err = capfd.readouterr().err
    assert "fog of mnist is a test corruption; choose on dev: --shifts cifar/dev" in err
    assert tune(*fog, "--selection", "oracle", "--out", "oracle.json") == 0
    out = capfd.readouterr().out
    assert "oracle: chosen on the test data" in out
    entry = json.loads(Path("oracle.json").read_text())[MODEL]["ent"]
    assert entry["selection"] == "oracle: chosen on the test data"
    assert "dev_error" not in entry
    assert entry["test_error"] >= 0
    words = ["bench", *WHAT, *WHERE, "--choice", "oracle.json", "--shifts", "cifar/fog:3"]
    assert main(words) == 0
    assert "options of oracle.json, oracle: chosen on the test data" in capfd.readouterr().out


def test_a_setting_that_cannot_be_run_is_listed_and_not_chosen(capfd):
    words = [*SHIFTS, "--set", "optimizer.lr=0.1", *SEARCH[2:], "--set", "batch_size=128,1"]
    assert tune(*words, "--out", "some.json") == 1
    out = capfd.readouterr().out
    assert "not chosen from: batch_size=1 optimizer.lr=0.1: 2 of 2 runs are missing: one im" in out
    entry = json.loads(Path("some.json").read_text())[MODEL]["ent"]
    assert entry["options"]["batch_size"] == 128
    assert [each["options"]["batch_size"] for each in entry["incomplete"]] == [1]


def test_a_run_tells_of_all_smaller_numbers_of_epochs():
    shorter = ["--set", "optimizer.lr=0.1", "--epochs", "1", "--severities", "3"]
    assert tune(*shorter, *SHIFTS) == 0
    runs = [r for r in Store("tune.db").results() if dict(r.job.options)["optimizer.lr"] == 0.1]
    by_epochs = {(r.job.shift, dict(r.job.options)["epochs"]): r.after_epoch(1) for r in runs}
    for shift in ("cifar/saturate:3", "cifar/spatter:3"):
        assert by_epochs[shift, 1] == by_epochs[shift, 2]


def planned(capfd, *words: str) -> dict:
    assert main(["tune", "--store", "new.db", "--dry-run", "--json", *words]) == 0
    return json.loads(capfd.readouterr().out)


def test_what_is_searched_where_nobody_says(capfd):
    record = planned(capfd, "--models", MODEL, "--datasets", "mnist")
    # ent and rpl, hold-out corruptions, severities, the paper's learning rates
    assert record["jobs"] == 2 * 4 * 5 * 4
    assert record["first"][0]["shift"] == "cifar/speckle_noise:1"
    assert record["first"][0]["options"] == {"epochs": 5, "optimizer.lr": 0.0001}
    words = ["--models", MODEL, "--datasets", "mnist", "--recipes", "ent", "rpl", "bn"]
    record = planned(capfd, *words, "--set", "ent:optimizer.lr=0.1")
    assert record["jobs"] == (1 + 4 + 1) * 4 * 5  # one rate is given, and bn has none
    record = planned(capfd, *words, "--lr", "0.1,0.2")
    assert record["jobs"] == (2 + 2 + 1) * 4 * 5


def test_wilds_chooses_on_its_validation_split(capfd):
    record = planned(capfd, "--models", MODEL, "--datasets", "camelyon17", "--recipes", "ent")
    assert {job["split"] for job in record["first"]} == {"val"}
    words = ["--models", MODEL, "--datasets", "camelyon17", "--store", "new.db", "--split", "test"]
    assert main(["tune", *words]) == 2
    assert "--split val" in capfd.readouterr().err


def test_the_smaller_search_of_the_largest_model(capfd):
    words = ["--models", "paper:resnet50", "--datasets", "imagenet-c", "--recipes", "ent"]
    record = planned(capfd, *words, "--preset", "efficientnet-l2")
    assert record["jobs"] == 3 * 3 * 4
    assert record["first"][0]["options"] == {"epochs": 1, "optimizer.lr": 0.046}
    record = planned(capfd, *words, "--preset", "efficientnet-l2", "--set", "optimizer.lr=1e-3")
    assert record["jobs"] == 3 * 3


def test_leaving_each_domain_out(capfd):
    words = ["--models", "paper:resnet50", "--datasets", "imagenet-d", "--recipes", "ent"]
    assert planned(capfd, *words, "--leave-one-out")["jobs"] == 6 * 4
    assert main(["tune", *words, "--store", "new.db"]) == 2
    assert "or --leave-one-out" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--recipes none", "nothing to choose"),
        ("--severities 1,6", "expected severities from 1 to 5"),
        ("--shifts cifar/spatter:1 --severities 3", "no shift of mnist is left"),
        ("--shifts cifar/frost:1", "test corruption"),
        ("--shifts clean", "no hold-out set"),
        ("--leave-one-out", "two or more domains"),
        ("--selection oracle", "expected test data with --selection oracle, got hold-out images"),
        ("--leave-one-out --select label-free", "expected one way to choose"),
        ("--epochs 0", "expected epochs >= 1"),
        ("--set epochs=1,3", "expected --epochs 3, got --set epochs=1,3: one run covers all"),
        ("--set optimizer.lr=1 --set optimizer.lr=2", "expected --set optimizer.lr once"),
        ("--seeds 99999999999999999999", "expected seed < 2^63"),
        ("--lr 1 --set optimizer.lr=2", "--lr 1 and --set optimizer.lr=2 set the same option"),
    ],
)
def test_mistakes(words, said, capfd):
    assert tune(*words.split()) == 2
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert said in err


def test_a_choice_that_was_made_is_not_lost_where_none_can_be(capfd):
    Path("kept.json").write_text("{}")
    words = ["--set", "optimizer.lr=1e30", "--epochs", "2", "--severities", "3", *SHIFTS]
    assert tune(*words, "--out", "kept.json") == 1
    assert "kept.json: not written, nothing was chosen" in capfd.readouterr().out
    assert Path("kept.json").read_text() == "{}"


def test_no_place_for_the_choice(capfd):
    assert tune(*SEARCH, *SHIFTS, "--out", "nowhere/choice.json", "--store", "new.db") == 2
    assert "cannot write nowhere/choice.json: there is no folder nowhere" in capfd.readouterr().err
    assert not Path("new.db").exists()  # said before anything ran
