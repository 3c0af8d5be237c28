"""The measurements that the repository stores, and resuming from them."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

import measure
from acclimate.bench import Job, Result, Store
from acclimate.bench.images import ImageCache, Opened
from acclimate.data.shift import Shift
from tiny_data import tiny_npz

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


def asked(name: str, store: Path, root: object, **more: object) -> Namespace:
    """The arguments of ``run`` as its parser has them."""
    names = ("stages", "workers", "images", "shifts", "device", "seconds", "export")
    usual = dict.fromkeys(names)
    return Namespace(name=name, store=store, root=root, **{**usual, "missing": False, **more})


STORED = [name for name in measure.NAMES if measure.target_of(name).exists()]


@pytest.mark.parametrize("name", STORED)
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


def test_large_results_are_compressed(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "LARGE", {"cifar10c"})
    Store(tmp_path / "a.db").add_all([result(), result("cifar/frost:5")])
    rows = exported(tmp_path / "a.db")
    (file,) = results.glob("*.json*")
    assert file.name == "cifar10c.json.gz"
    before = file.read_bytes()
    assert before[:2] == b"\x1f\x8b"
    assert exported(tmp_path / "a.db") == rows
    assert file.read_bytes() == before  # the same bytes, whenever it is written


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
        measure.run(asked("cifar10c", tmp_path / store, tmp_path, stages=[1], missing=True))
        return [words[0] for words in ran]

    exported(tmp_path / "a.db")
    assert resume("first/any.db") == ["tune", "bench"]
    assert Store(tmp_path / "first/any.db").done_keys() == {result().key}

    chosen.write_text("{}", encoding="utf-8")
    exported(tmp_path / "a.db")
    assert resume("second/other.db") == ["bench"]
    assert measure.choice_file("cifar10c", tmp_path / "second", search).read_text() == "{}"


def test_stages_that_choose_nothing_run_together() -> None:
    def bench(**more: object) -> dict[str, object]:
        return {"bench": {"datasets": ["imagenet"], "score": "end", **more}}

    first, second = bench(recipes=["bn"]), bench(recipes=["ent"])
    tuned = {"tune": {"models": ["m"]}, **bench()}
    scored = bench(score="epochs")
    found = list(measure.shared([first, second, tuned, tuned, scored, first]))
    assert found == [[first, second], [tuned], [tuned], [scored], [first]]


@pytest.fixture
def two_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of two stages on the same two shifts."""
    first = {
        "models": ["acclimate:digits"], "datasets": ["mnist"], "recipes": ["none", "bn"],
        "shifts": ["cifar/fog:5", "cifar/contrast:5"], "images": 8, "incomplete": True,
        "score": "end",
    }  # fmt: skip
    second = {**first, "recipes": ["ent"], "set": ["epochs=1", "optimizer.lr=0.001,0.01"]}
    monkeypatch.setattr(measure, "plan", lambda name: [{"bench": first}, {"bench": second}])


def test_jobs_of_all_stages_share_their_images(
    tmp_path: Path, two_stages: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = ImageCache._made

    def counted(self: ImageCache, clean: Opened, shift: Shift, **more: object) -> Opened:
        made.append(str(shift))
        return make(self, clean, shift, **more)

    monkeypatch.setattr(ImageCache, "_made", counted)
    tiny_npz(tmp_path / "mnist-test.npz", side=28, channels=1)
    store = tmp_path / "any.db"
    assert measure.run(asked("any", store, tmp_path, device="cpu")) == 0
    assert made == ["cifar/fog:5", "cifar/contrast:5"]
    done = Store(store).results()
    assert [each.job.recipe for each in done].count("ent") == 4
    assert len(done) == 8
    made.clear()
    assert measure.run(asked("any", store, tmp_path, device="cpu")) == 0
    assert made == []  # all of it is done


def test_a_run_brings_its_results_to_another_machine(
    tmp_path: Path, two_stages: None, results: Path
) -> None:
    tiny_npz(tmp_path / "mnist-test.npz", side=28, channels=1)
    (out := tmp_path / "out").mkdir()
    before = {measure.identity(row) for row in exported_of(tmp_path, "cifar10c")}
    measure.run(asked("cifar10c", tmp_path / "any.db", tmp_path, device="cpu", export=out))
    rows = json.loads((out / "cifar10c.json").read_text(encoding="utf-8"))
    found = {measure.identity(row) for row in rows}
    assert before < found  # those that were exported already, and eight more
    assert len(found) == len(before) + 8
    assert {measure.identity(row) for row in measure.exported("cifar10c")} == before


def exported_of(folder: Path, name: str) -> list[dict[str, object]]:
    """A result that another run has exported."""
    Store(folder / "a.db").add(result())
    measure.export(Namespace(name=name, store=folder / "a.db"))
    return measure.exported(name)


def test_a_run_stops_when_its_time_is_up_and_resumes(tmp_path: Path, two_stages: None) -> None:
    tiny_npz(tmp_path / "mnist-test.npz", side=28, channels=1)
    store = tmp_path / "any.db"
    stopped = measure.run(asked("any", store, tmp_path, device="cpu", seconds=0.001))
    assert stopped == measure.INTERRUPTED
    before = len(Store(store).results()) if store.exists() else 0
    assert before < 8
    assert measure.run(asked("any", store, tmp_path, device="cpu", seconds=600)) == 0
    assert len(Store(store).results()) == 8


@pytest.mark.parametrize("name", measure.NAMES)
def test_the_cost_of_every_plan_is_known(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure.cost(Namespace(name=name, images=5000, rate=10_000)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(measure.plan(name)) + 1
    assert lines[-1].startswith("all")


def test_a_run_that_is_scored_at_its_end_alone_costs_less() -> None:
    job = Job.of(
        model="m", dataset="imagenet", recipe="rpl", shift="imagenet/fog:5", options={"epochs": 5}
    )
    each, end = (measure.passes_of(job, 100, once=once) for once in (False, True))
    assert each - end == 4 * 100
