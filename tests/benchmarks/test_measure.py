"""What the repository keeps of measurements, and going on from it."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from acclimate.experiments import Job, Result, Store

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # as when it is run
import kept_rows
import measure


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


def test_a_line_gives_back_the_result_under_the_key_of_its_job() -> None:
    for made in (result(), result(images=50), result(forgetting=True)):
        made = Result(job=made.job, record={**made.record, "forgetting": {"after": 6.0}})
        kept = json.loads(json.dumps(kept_rows.row(made)))
        if not made.job.forgetting:
            kept["forgetting"] = None
        again = kept_rows.restored(kept)
        assert again is not None
        assert again.key == made.key
        assert kept_rows.row(again) == kept


def test_a_line_that_does_not_tell_all_that_was_run_is_not_taken_for_it() -> None:
    kept = kept_rows.row(result())
    assert kept_rows.restored({**kept, "weights": "resnet50.safetensors"}) is None
    del kept["images_per_shift"]
    assert kept_rows.restored(kept) is None


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


def test_a_new_store_goes_on_where_the_export_ends(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path / "a.db").add(result())
    exported(tmp_path / "a.db")
    ran: list[list[str]] = []
    monkeypatch.setattr(measure, "acclimate", lambda words: ran.append(words) or 0)
    args = Namespace(
        name="cifar10c", store=tmp_path / "b.db", root=tmp_path, workers=None, stages=[1],
        images=None, missing=True,
    )  # fmt: skip
    measure.run(args)
    assert Store(tmp_path / "b.db").done_keys() == {result().key}
    assert [words[0] for words in ran] == ["tune", "bench"]

    choice = measure.choice_file(args.store, measure.plan("cifar10c")[0]["tune"])
    (results / "choices").mkdir(exist_ok=True)
    (results / "choices" / choice.name).write_text("{}", encoding="utf-8")
    ran.clear()
    measure.run(args)
    assert [words[0] for words in ran] == ["bench"]
    assert choice.read_text() == "{}"
