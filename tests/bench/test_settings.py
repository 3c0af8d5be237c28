"""The order in which a model meets its images, and sweeps over it."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
import torch

from acclimate.acceleration import EXACT
from acclimate.bench import Job, Plan, Result, Store
from acclimate.bench.images import ImageCache
from acclimate.bench.job import ImageOrder
from acclimate.bench.store import VERSION
from acclimate.bench.streaming import stream_order
from acclimate.bench.worker import Worker
from acclimate.cli import main
from acclimate.data import Shift, ShiftedSource, open_dataset, open_images
from acclimate.data.base import JoinedSource
from acclimate.data.corruptions import DEV, TEST
from acclimate.errors import AcclimateError
from acclimate.models import load
from acclimate.models.device import copy_model
from acclimate.stream import Stream
from sweeps import a_job, write_digits

pytestmark = pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")

ONLY = {"epochs": 1}


@pytest.fixture
def roots(tmp_path):
    return write_digits(tmp_path)


@pytest.fixture
def worker(roots):
    return Worker(roots, device="cpu", incomplete=True)


def run(worker: Worker, setting: str, *, shift: str, recipe: str = "ent", **changes):
    result = worker.run(a_job(recipe, shift=shift, setting=setting, options=ONLY, **changes))
    assert result.status == "done", result.message
    return result.record.to_dict()


# Words


def test_a_setting_is_a_word_and_correlated_labels_take_a_number() -> None:
    assert ImageOrder.parse("correlated:0.5").concentration == 0.5
    assert str(ImageOrder.parse("mixed")) == "mixed"
    for word, why in [
        ("continuous", "did you mean"),
        ("mixed:2", "takes no number"),
        ("correlated:0", "concentration > 0"),
        ("correlated:many", "concentration > 0"),
    ]:
        with pytest.raises(AcclimateError, match=why):
            ImageOrder.parse(word)


def test_the_usual_setting_is_the_same_job_by_any_name() -> None:
    assert a_job(setting="stationary").key == a_job().key
    assert a_job(setting="correlated").key == a_job(setting="correlated:0.1").key
    assert a_job(setting="online").key != a_job().key


def test_a_plan_makes_one_job_of_a_group_where_a_stream_runs_through_it() -> None:
    plan = Plan(
        models=["acclimate:digits"],
        datasets=["mnist"],
        shifts=["cifar/dev:3"],
        recipes=["ent"],
        settings=["online", "continual", "mixed"],
    )
    jobs = plan.jobs()
    assert [job.setting for job in jobs] == ["online"] * len(DEV) + ["continual", "mixed"]
    assert {job.shift for job in jobs[-2:]} == {"cifar/dev:3"}
    assert {job.group for job in jobs} == {"dev"}


def test_a_gradual_stream_has_all_severities_and_others_one_each() -> None:
    common = {"models": ["acclimate:digits"], "datasets": ["mnist"], "recipes": ["ent"]}
    gradual = Plan(**common, shifts=["cifar/test"], settings=["gradual"])
    assert [job.shift for job in gradual.jobs()] == ["cifar/test"]
    continual = Plan(**common, shifts=["cifar/test"], settings=["continual"])
    assert [job.severity for job in continual.jobs()] == [1, 2, 3, 4, 5]
    with pytest.raises(AcclimateError, match="expected cifar/test, got 'cifar/test:5'"):
        Plan(**common, shifts=["cifar/test:5"], settings=["gradual"]).jobs()
    with pytest.raises(AcclimateError, match="runs through a group of shifts"):
        Plan(**common, shifts=["cifar/fog:5"], settings=["mixed"]).jobs()
    with pytest.raises(AcclimateError, match="forgetting is measured in the setting stationary"):
        Plan(**common, shifts=["cifar/test:5"], settings=["mixed"], forgetting=True).jobs()


# Joined sources


def test_pictures_of_several_sources_are_read_in_any_order() -> None:
    parts = [open_images(torch.rand(n, 3, 4, 4), labels=torch.full((n,), n)) for n in (2, 5, 3)]
    joined = JoinedSource(parts)
    wanted = torch.tensor([9, 0, 4, 1, 7, 2])
    every = torch.cat([each.read(torch.arange(len(each))) for each in parts])
    assert torch.equal(joined.read(wanted), every[wanted])
    assert joined.labels.tolist() == [2] * 2 + [5] * 5 + [3] * 3
    assert joined.which(wanted).tolist() == [2, 0, 1, 0, 2, 1]
    assert joined.fingerprint() != JoinedSource(parts[::-1]).fingerprint()


# Runs


def test_a_continual_stream_is_what_a_stream_does_by_hand(worker, roots) -> None:
    record = run(worker, "continual", shift="cifar/dev:3", seed=2)
    loaded = load("acclimate:digits")
    clean = open_dataset(
        "mnist", roots["mnist"], preprocessing=loaded.preprocessing, incomplete=True
    )
    shifts = [Shift.parse(f"cifar/{name}:3") for name in DEV]
    images = torch.cat([ShiftedSource(clean, s).read(torch.arange(160)) for s in shifts])
    assert loaded.preprocessing is not None
    inputs, labels = loaded.preprocessing.normalize(images), clean.labels.repeat(len(DEV))
    options = {"epochs": 1, "optimizer.lr": 0.01}
    stream = Stream(copy_model(loaded.model), "ent", options=options, guard="observe", seed=2)
    wrong = torch.zeros(len(DEV) * 160, dtype=torch.bool)
    order = stream_order(ImageOrder("continual"), [160] * len(DEV), labels, seed=2)
    for chosen in order.split(128):
        wrong[chosen] = stream(inputs[chosen]).argmax(dim=1) != labels[chosen]
    assert record["errors"]["online"] == pytest.approx(100 * wrong.double().mean().item())
    by_hand = [100 * part.double().mean().item() for part in wrong.split(160)]
    assert record["by_shift"] == {
        name: [pytest.approx(error)] for name, error in zip(DEV, by_hand, strict=True)
    }
    assert record["images"] == len(DEV) * 160
    assert record["forwards"] >= record["backwards"] == -(-len(DEV) * 160 // 128)


def test_the_seed_is_that_of_the_order_and_of_every_draw(worker, monkeypatch) -> None:
    seeds: list[int] = []

    class Watched(Stream):
        def __init__(self, *words, **options):
            super().__init__(*words, **options)
            seeds.append(self.learner.generator.initial_seed())

    monkeypatch.setattr("acclimate.bench.streaming.Stream", Watched)
    run(worker, "online", shift="cifar/fog:2", seed=7, images=16)
    assert seeds == [7]


def test_a_gradual_stream_rises_and_fades(worker) -> None:
    record = run(worker, "gradual", shift="cifar/dev", images=16, recipe="bn")
    assert {len(errors) for errors in record["by_shift"].values()} == {9}
    assert record["images"] == len(DEV) * 9 * 16


def test_a_wave_of_severities_and_then_another_group_from_the_same_images(roots) -> None:
    images = ImageCache(roots, device=torch.device("cpu"), incomplete=True)
    loaded = load("acclimate:digits")
    gradual = a_job("bn", shift="cifar/dev", setting="gradual", images=4)
    _, met = images.met(gradual, loaded)
    wave = [1, 2, 3, 4, 5, 4, 3, 2, 1]
    assert [each.shift.severity for each in met.images.sources] == wave * len(DEV)
    assert list(met.shifts) == [name for name in DEV for _ in wave]
    continual = replace(gradual, shift="cifar/dev:3", setting="continual")
    _, met = images.met(continual, loaded)
    assert [each.shift.severity for each in met.images.sources] == [3] * len(DEV)
    assert images.met(continual, loaded)[1] is met
    other = images.met(replace(continual, shift="cifar/dev:4"), loaded)[1]
    assert other.images.sources[0].shift.severity == 4


def test_what_the_guard_sees_is_written_down_and_changes_nothing(worker, roots) -> None:
    far = {"optimizer.lr": 30.0}
    job = a_job("ent", shift=None, setting="online", options=far | ONLY)
    record = worker.run(replace(job, options=(*job.options, ("batch_size", 8)))).record.to_dict()
    assert any("moved by" in e["trouble"] or "collaps" in e["trouble"] for e in record["events"])
    loaded = load("acclimate:digits")
    clean = open_dataset(
        "mnist", roots["mnist"], preprocessing=loaded.preprocessing, incomplete=True
    )
    assert loaded.preprocessing is not None
    options = {**far, "batch_size": 8}
    stream = Stream(copy_model(loaded.model), "ent", options=options, guard="off")
    wrong = 0
    for chosen in stream_order(ImageOrder("online"), [160], None, seed=0).split(8):
        logits = stream(loaded.preprocessing.normalize(clean.read(chosen)))
        wrong += int((logits.argmax(dim=1) != clean.labels[chosen]).sum())
    assert record["wrong"] == wrong


def test_a_stream_passes_once_and_says_so(worker) -> None:
    job = a_job("rpl", setting="online")
    assert dict(job.options)["epochs"] == 2
    record = worker.run(replace(job, options=())).record.to_dict()
    assert record["recipe"]["epochs"] == 1
    assert any("1 epoch(s) over 160 images" in note for note in record["notes"])
    assert record["backwards"] == 2
    assert worker.run(job).record.backwards == 2
    assert record["speed"] == str(EXACT)


def test_the_shifts_of_a_group_share_what_may_be_kept_in_memory(roots) -> None:
    job = a_job("bn", shift="cifar/dev:3", setting="continual")
    size = 160 * math.prod(load("acclimate:digits").preprocessing.shape)
    for cache, kept in ((2 * size, 2), (len(DEV) * size, len(DEV)), (0, 0)):
        images = ImageCache(roots, device=torch.device("cpu"), incomplete=True, cache=cache)
        _, met = images.met(job, load("acclimate:digits"))
        assert sum(each._kept.keeps for each in met.images.sources) == kept


def test_shifts_without_severities_do_not_grow_and_fade() -> None:
    images = ImageCache({}, device=torch.device("cpu"))
    job = Job(model="m", dataset="imagenet-d", shift="all", recipe="ent", setting="gradual")
    with pytest.raises(AcclimateError, match="imagenet-d have no severities"):
        images.met(job, load("acclimate:digits"))


def test_one_image_at_a_time(worker) -> None:
    record = run(worker, "single", shift="cifar/fog:2", images=12)
    assert record["batch_size"] == 1
    assert record["backwards"] == 12
    assert any("one image has no batch statistics" in note for note in record["notes"])
    assert any(note.endswith("for batches of 1") for note in record["notes"])  # the rate follows


def test_the_model_as_it_is_makes_the_same_errors_in_any_order(worker) -> None:
    records = [
        run(worker, setting, shift="cifar/fog:2", recipe="none", seed=seed)
        for setting, seed in (("online", 0), ("correlated:0.01", 5))
    ]
    assert records[0]["wrong"] == records[1]["wrong"]
    assert records[0]["backwards"] == 0


# The store and the command line


def test_a_sweep_over_settings_from_the_command_line(roots, tmp_path, capsys) -> None:
    store = tmp_path / "results.db"
    words = ["bench", "--models", "acclimate:digits", "--datasets", "mnist", "--incomplete"]
    words += ["--root", roots["mnist"], "--shifts", "cifar/test:2", "--recipes", "bn", "ent"]
    words += ["--settings", "continual", "mixed", "--images-per-shift", "10", "--store", str(store)]
    assert main([*words, "--json", "--quiet"]) == 0
    table = json.loads(capsys.readouterr().out)["table"]
    assert "setting" in table["rows"]
    assert main(["results", str(store), "--where", "setting=mixed", "--json"]) == 0
    kept = Store(store).results()
    assert sorted((r.job.setting, r.job.recipe) for r in kept) == [
        ("continual", "bn"),
        ("continual", "ent"),
        ("mixed", "bn"),
        ("mixed", "ent"),
    ]
    assert all(len(r.record.by_shift) == len(TEST) for r in kept)
    assert main([*words[:-2], "--store", str(store), "--settings", "mxied"]) == 2
    assert "did you mean 'mixed'" in capsys.readouterr().err


@pytest.fixture
def old_store(tmp_path):
    """As it was before there were settings."""
    path = tmp_path / "old.db"
    Store(path)
    with closing(sqlite3.connect(path)) as connection:
        for column in ("setting", "sha256"):
            connection.execute(f"ALTER TABLE results DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


def test_a_store_from_before_there_were_settings_is_brought_up_to_date(old_store) -> None:
    store = Store(old_store)
    job = Job(model="m", dataset="mnist", recipe="ent", setting="online")
    store.add(Result(job=job, record={"errors": {"final": 1.0}}))
    assert store.select(["setting"]).rows == [("online",)]
    with closing(sqlite3.connect(old_store)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == VERSION


def test_an_old_store_that_nobody_may_write_to_says_so(old_store, monkeypatch) -> None:
    upgrades = {1: ("ALTER TABLE nowhere ADD COLUMN x",)}
    monkeypatch.setattr("acclimate.bench.store.UPGRADES", upgrades)
    with pytest.raises(
        AcclimateError, match=r"older acclimate.*copy it to where it can be written"
    ):
        Store(old_store)
