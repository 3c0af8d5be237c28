"""The measurements that the repository stores, and resuming from them."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

import measure
from acclimate.bench import Job, Result, Store

NOT_RUN_YET = {"imagenet_methods"}
"""Plans that take a GPU."""
WITHOUT_DIGEST = {"resnet18.safetensors", "wrn-28-10.safetensors"}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    monkeypatch.setattr(measure, "RESULTS", folder)
    monkeypatch.setattr(measure, "CHOICES", folder / "choices")
    return folder


def result(shift: str = "cifar/fog:5", error: float = 10.0, **more: object) -> Result:
    job = Job.of(
        model="acclimate:wrn-26-2-bn-cifar10", dataset="cifar10", recipe="ent", shift=shift,
        options={"optimizer.lr": 0.01, "epochs": 2}, seed=1, **more,
    )  # fmt: skip
    errors = {"unadapted": 20.0, "final": error, "after_epoch": [11.0, error], "online": 12.0}
    return Result(job=job, record={"errors": errors, "images": 50, "seconds": 1.5, "device": "cpu"})


def exported(store: Path) -> list[dict[str, object]]:
    measure.export(Namespace(name="cifar10c", store=store))
    return measure.exported("cifar10c")


def test_a_row_restores_the_result_under_the_key_of_its_job(tmp_path: Path) -> None:
    weights = tmp_path / "net.safetensors"
    weights.write_bytes(b"any")
    for made in (result(), result(images=50), result(forgetting=True), result(weights=weights)):
        row = json.loads(json.dumps(measure.row(made)))
        weights.unlink(missing_ok=True)  # known by their content from now on
        again = measure.restored(row)
        assert again.key == made.key == measure.identity(row)
        assert measure.row(again) == row
        assert str(tmp_path) not in json.dumps(row)
        weights.write_bytes(b"any")


@pytest.mark.parametrize("name", measure.NAMES)
def test_every_exported_row_is_of_another_job(name: str) -> None:
    lines = measure.exported(name)
    assert bool(lines) != (name in NOT_RUN_YET)
    assert len({measure.identity(each) for each in lines}) == len(lines)
    for line in lines:
        again = measure.restored(line)
        # Networks that were too large to ship, and whose weights are known by name alone.
        by_name = line["weights"] in WITHOUT_DIGEST and "job" not in line
        assert measure.row(again) == line | ({"job": again.job.to_dict()} if by_name else {})
        assert again.key == measure.identity(line)


def test_an_export_adds_to_what_other_stores_gave(results: Path, tmp_path: Path) -> None:
    Store(tmp_path / "a.db").add_all([result(), result("cifar/frost:5")])
    Store(tmp_path / "b.db").add_all([result(error=9.0), result("cifar/snow:5")])
    exported(tmp_path / "a.db")
    rows = exported(tmp_path / "b.db")
    assert {row["shift"]: row["error"] for row in rows} == {
        "cifar/fog:5": 9.0,  # the newer
        "cifar/frost:5": 10.0,
        "cifar/snow:5": 10.0,
    }


def test_what_only_served_to_choose_is_left_out(results: Path, tmp_path: Path) -> None:
    Store(tmp_path / "a.db").add_all([result(), result("cifar/spatter:5")])
    assert [row["shift"] for row in exported(tmp_path / "a.db")] == ["cifar/fog:5"]


def test_what_was_restored_is_not_exported_again(results: Path, tmp_path: Path) -> None:
    Store(tmp_path / "a.db").add(result())
    (line,) = exported(tmp_path / "a.db")
    old = measure.restored({**line, "error": 99.0})
    Store(tmp_path / "b.db").add(old)
    assert exported(tmp_path / "b.db") == [line]


def test_a_new_store_resumes_where_the_export_ends(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = measure.plan("cifar10c")[0]["tune"]
    chosen = measure.choice_file("cifar10c", tmp_path, search)
    Store(tmp_path / "a.db").add(result())
    ran: list[list[str]] = []
    monkeypatch.setattr(measure, "acclimate", lambda words: ran.append(words) or 0)

    def resume(store: str) -> list[str]:
        ran.clear()
        (tmp_path / store).parent.mkdir(exist_ok=True)
        common = {"name": "cifar10c", "root": tmp_path, "stages": [1], "missing": True}
        measure.run(Namespace(store=tmp_path / store, workers=None, images=None, **common))
        return [words[0] for words in ran]

    exported(tmp_path / "a.db")
    assert resume("first/any.db") == ["tune", "bench"]
    assert Store(tmp_path / "first/any.db").done_keys() == {result().key}

    chosen.write_text("{}", encoding="utf-8")
    exported(tmp_path / "a.db")
    assert resume("second/other.db") == ["bench"]
    assert measure.choice_file("cifar10c", tmp_path / "second", search).read_text() == "{}"
