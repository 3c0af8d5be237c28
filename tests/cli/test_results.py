"""``acclimate results``."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from acclimate.bench import Job, Result, Store
from acclimate.cli import main
from acclimate.data.corruptions import TEST
from torch_free import run_without_torch


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store("sweep.db")
    for recipe, gain in (("none", 0.0), ("ent", 5.0)):
        for seed in (0, 1) if recipe == "ent" else (0,):
            for severity in (1, 5):
                job = Job(
                    model="acclimate:digits",
                    dataset="mnist",
                    recipe=recipe,
                    shift=f"imagenet/fog:{severity}",
                    seed=seed,
                )
                errors = {"final": 10.0 * severity - gain + seed}
                store.add(Result(job=job, record={"errors": errors, "labelled": 50}))
    failed = Job(model="acclimate:digits", dataset="mnist", recipe="rpl", shift="imagenet/fog:1")
    store.add(Result.failed(failed, "out of memory"))


def results(*words: str) -> int:
    return main(["results", "sweep.db", *words])


def test_a_table_for_people(capfd):
    assert results() == 0
    out = capfd.readouterr().out
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith("acclimate:")}
    assert "30.0 (1 of 15)" in rows["none"]
    assert "25.5 ± 0.7 (1 of 15)" in rows["ent"]
    assert rows["none"].endswith("100")
    assert "[1 failed]" in rows["rpl"]
    for said in ("top-1 error % of the returned model", "dataset mnist", "severities 1, 5 only"):
        assert said in out
    assert "failed jobs: 1" in out


@pytest.mark.parametrize("words", [[], ["--columns", "corruption"], ["--export", "all.csv"]])
def test_a_table_waits_for_no_torch(words):
    run_without_torch(["results", "sweep.db", *words])


def test_forgetting_that_nobody_measured(capfd):
    assert results("--value", "forgetting") == 0
    assert "measure it with acclimate bench --forgetting" in capfd.readouterr().out


def test_why_jobs_failed(capfd):
    for seed, reason in enumerate(["out of memory", *"abc"]):
        job = Job(model="m", dataset="mnist", recipe="rpl", seed=seed)
        Store("sweep.db").add(Result.failed(job, f"{reason}\nin full"))
    assert results() == 0
    *_, first, second, third, more = capfd.readouterr().out.splitlines()
    assert (first, second, third) == ("  2: out of memory", "  1: a", "  1: b")
    assert "1 more reason" in more


def test_columns_rows_and_conditions(capfd):
    chosen = ["--where", "recipe=none", "--where", "severity=5"]
    assert results("--columns", "corruption", *chosen) == 0
    out = capfd.readouterr().out
    assert "fog" in out
    assert "mean test" in out
    assert "50.0 (1 of 15)" in out
    assert results("--rows", "seed", "--columns", "severity", "--where", "recipe=ent") == 0
    lines = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert ["seed", "severity", "1", "severity", "5", "images"] in lines
    assert [line[0] for line in lines if line and line[0] in "01"] == ["0", "1"]


def order(out: str) -> list[str]:
    return [line.split()[1] for line in out.splitlines() if line.startswith("acclimate:")]


def test_rows_are_sorted_by_what_is_asked_for(capfd):
    for name, expected in {
        "error": ["ent", "none", "rpl"],  # rpl failed: what is not known comes last
        "-error": ["none", "ent", "rpl"],
        "recipe": ["ent", "none", "rpl"],
        "-recipe": ["rpl", "none", "ent"],
    }.items():
        assert results(f"--sort={name}") == 0
        assert order(capfd.readouterr().out) == expected
    assert results("--columns", "corruption", "--sort", "fog") == 0
    assert order(capfd.readouterr().out) == ["ent", "none", "rpl"]


def test_what_a_table_has_not_is_no_way_to_sort_it(capfd):
    assert results("--columns", "corruption", "--sort", "snow") == 2
    known = "unknown name to sort by 'snow'. Known: error, fog, mean test, model, recipe"
    assert known in capfd.readouterr().err


def test_what_is_a_column_is_no_row(capfd):
    assert results("--columns", "recipe") == 0
    head = header(capfd.readouterr().out)
    assert head[0] == "model"
    assert "recipe" not in head


def test_conditions_take_the_words_that_tables_have(capfd):
    Store("sweep.db").add(
        Result(job=Job(model="m", dataset="mnist", recipe="ent"), record={"errors": {"final": 7.0}})
    )
    assert results("--where", "corruption=clean", "--json") == 0
    (cell,) = json.loads(capfd.readouterr().out)["cells"]
    assert cell["value"] == 7.0
    assert results("--where", "setting=stationary", "--where", "model=m") == 0


def header(out: str) -> list[str]:
    lines = out.splitlines()
    rule = next(place for place, line in enumerate(lines) if line.startswith("---"))
    return [word.strip() for word in lines[rule - 1].split("  ") if word.strip()]


def test_a_number_in_the_head_says_what_it_is_of(capfd):
    assert results("--where", "recipe=ent", "--columns", "recipe,seed", "--rows", "model") == 0
    assert header(capfd.readouterr().out) == ["model", "ent seed 0", "ent seed 1", "images"]
    assert results("--columns", "options.optimizer.lr") == 0
    assert "optimizer.lr -" in header(capfd.readouterr().out)
    assert results("--value", "memory") == 0
    assert "memory MiB" in header(capfd.readouterr().out)


def test_rows_of_two_settings_say_which(capfd):
    store = Store("two.db")
    for name, dataset, setting in (("a", "cifar10", "online"), ("b", "mnist-m", None)):
        job = Job(model=name, dataset=dataset, recipe="bn", images=50, setting=setting)
        store.add(Result(job=job, record={"errors": {"final": 4.0}, "labelled": 50}))
    assert main(["results", "two.db"]) == 0
    out = capfd.readouterr().out
    assert header(out) == ["model", "recipe", "dataset", "setting", "error", "images"]
    assert "images 50" in out
    assert out.splitlines()[-1].split() == ["b", "bn", "mnist-m", "stationary", "4.0", "50"]


def test_one_is_not_several(capfd):
    one = ["--where", "recipe=none", "--where", "severity=5"]
    assert results(*one) == 0
    assert "\nseverity 5 only" in capfd.readouterr().out
    assert results(*one, "--export", "one.csv") == 0
    assert capfd.readouterr().out == "1 result written to one.csv\n"


def test_json(capfd):
    assert results("--rows", "recipe", "--json") == 0
    plain = json.loads(capfd.readouterr().out)
    cells = {cell["row"]["recipe"]: cell for cell in plain["cells"]}
    assert cells["ent"]["value"] == 25.5
    assert cells["ent"]["shifts"] == 1
    assert not cells["ent"]["complete"]


def test_export_and_merge(capfd):
    assert results("--export", "all.json", "--where", "recipe=ent") == 0
    assert "4 results written to all.json" in capfd.readouterr().out
    Store("other.db")
    assert main(["results", "other.db", "--merge", "all.json"]) == 0
    assert "4 new" in capfd.readouterr().out
    assert len(Store("other.db")) == 4


def test_every_export_that_is_asked_for_is_written(capfd):
    assert results("--export", "all.csv", "--export", "all.json") == 0
    assert "7 results written to all.csv and all.json" in capfd.readouterr().out
    assert all(Path(name).exists() for name in ("all.csv", "all.json"))
    assert results("--export", "all.csv", "--export", "all.json", "--json") == 0
    said = json.loads(capfd.readouterr().out)
    assert said == {"exported": 7, "files": ["all.csv", "all.json"]}


def test_an_export_becomes_a_store_again(capfd):
    assert results("--export", "all.json") == 0
    assert main(["results", "new.db", "--merge", "all.json"]) == 0
    assert "merged all.json: 7 new" in capfd.readouterr().out
    assert main(["results", "new.db", "--merge", "all.json", "--json"]) == 0
    merged = json.loads(capfd.readouterr().out)["merged"]
    assert merged == {"new": 0, "replaced": 1, "kept": 6}  # a failed one is no result to keep
    assert len(Store("new.db")) == 7


def test_a_table_is_no_store_to_merge(capfd):
    assert results("--export", "all.csv") == 0
    assert results("--merge", "all.csv") == 2
    assert "expected a store, or a .json that was exported" in capfd.readouterr().err


def test_what_cannot_be_merged_leaves_no_store_behind(capfd):
    Path("broken.json").write_text("{")
    for file in ("broken.json", "gone.db"):
        assert main(["results", "new.db", "--merge", file]) == 2
        assert file in capfd.readouterr().err
        assert not Path("new.db").exists()
    assert results("--export", "all.json") == 0
    stored = json.loads(Path("all.json").read_text())
    for each in stored["results"] if isinstance(stored, dict) else stored:
        each["record"]["data"] = each["job"]["recipe"]  # the same images, by other words
    Path("clash.json").write_text(json.dumps(stored))
    assert main(["results", "new.db", "--merge", "clash.json"]) == 2
    assert "other data" in capfd.readouterr().err
    assert not Path("new.db").exists()


def test_the_mce_of_other_data_than_imagenet_c_is_refused_in_words(capfd):
    store = Store("cifar.db")
    for shift, severity in product(TEST, range(1, 6)):
        name = f"cifar/{shift}:{severity}"
        job = Job(model="acclimate:digits", dataset="cifar10", recipe="none", shift=name)
        store.add(Result(job=job, record={"errors": {"final": 10.0}, "labelled": 50}))
    assert main(["results", "cifar.db", "--value", "mce"]) == 0
    assert "relative to AlexNet on ImageNet-C; other data" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--where", "modl=a"], "did you mean 'model'"),
        (["--where", "model=nothing*"], "has no results with model=nothing*"),
        (["--rows", "recipes"], "did you mean 'recipe'"),
        (["--value", "acc"], "unknown value 'acc'"),
        (["--export", "all.xls"], "expected a file ending in"),
    ],
)
def test_mistakes_are_said_without_a_traceback(capfd, words, said):
    assert results(*words) == 2
    assert said in capfd.readouterr().err


def test_a_store_that_is_not_there(capfd):
    assert main(["results", "gone.db"]) == 2
    assert "no such store: gone.db" in capfd.readouterr().err
    assert not Path("gone.db").exists()
