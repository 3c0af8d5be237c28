"""A worker turns jobs into results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from acclimate.acceleration import EXACT, Acceleration
from acclimate.adaptation.adapt import adapt
from acclimate.bench import Result, Weights
from acclimate.bench import images as _image_cache
from acclimate.bench import worker as _model_cache
from acclimate.bench import worker as running
from acclimate.bench.scoring import evaluate
from acclimate.bench.worker import Worker
from acclimate.data import shifted
from acclimate.data.benchmarks import open_dataset
from acclimate.data.shift import Shift
from acclimate.models import load
from sweeps import a_job, write_digits

pytestmark = pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")


@pytest.fixture
def roots(tmp_path):
    return write_digits(tmp_path)


@pytest.fixture
def worker(roots):
    return Worker(roots, device="cpu", incomplete=True)


def images_of(roots, loaded):
    return open_dataset(
        "mnist", roots["mnist"], preprocessing=loaded.preprocessing, incomplete=True
    )


def done(result: Result) -> Result:
    assert result.status == "done", result.message
    return result


def test_the_numbers_are_those_of_adapt(worker, roots):
    result = done(worker.run(a_job(seed=3)))
    loaded = load("acclimate:digits")
    alone = adapt(
        loaded,
        images_of(roots, loaded),
        "ent",
        options={"epochs": 2, "optimizer.lr": 0.01},
        shift="cifar/fog:2",
        guard="observe",
        device="cpu",
        seed=3,
        estimate=False,  # a benchmark has labels
        progress=False,
    )
    history, record = alone.history, result.record.to_dict()
    assert result.error == alone.error_after
    assert result.unadapted_error == alone.error_before
    assert result.online_error == history.epochs[0].before_update.error
    assert record["errors"]["after_epoch"] == [e.after_epoch.error for e in history.epochs]
    assert record["scores"] == [e.after_epoch.agreement for e in history.epochs]
    assert record["verdict"] == alone.verdict.word
    assert record["recipe"] == alone.recipe.to_dict()
    assert record["weights"] == alone.record.weights
    assert record["wrong"] / record["labelled"] == pytest.approx(result.error / 100)
    assert sum(record["balance"][0]["counts"]) == record["images"] == 160
    assert record["start_balance"]["counts"] == list(history.start.class_counts)
    for name in ("seconds", "memory", "batch_size", "preprocessing", "data"):
        assert record[name]
    assert record["device"] == "cpu"
    assert set(record["versions"]) >= {"acclimate", "torch", "python"}
    assert any("expected 10,000 images" in note for note in record["notes"])
    assert Result.from_dict(result.to_dict()) == result


def test_calibration_is_that_of_another_pass(worker, roots):
    record = done(worker.run(a_job("bn"))).record
    loaded = load("acclimate:digits")
    images = images_of(roots, loaded)
    adapted = adapt(loaded, images, "bn", shift="cifar/fog:2", guard="observe", progress=False)
    shifted = _image_cache.ShiftedSource(images, Shift.parse("cifar/fog:2"))
    scores = evaluate(adapted.model, shifted, progress=False)
    assert record.ece == pytest.approx(scores.calibration.ece().value, abs=1e-6)
    curve = scores.calibration.reliability()
    assert [point["count"] for point in record.reliability] == [point.count for point in curve]
    assert (record.wrong, record.labelled) == scores.errors.counts()


def test_no_clock_decides_on_numbers_unless_it_is_asked_to(roots, monkeypatch):
    faster = Acceleration(channels_last=True)
    monkeypatch.setattr("acclimate.acceleration.choosing._fastest", lambda *_, **__: faster)
    for setting in (None, "online"):
        job = a_job(setting=setting, options={"epochs": 4} if setting is None else {})
        some = {"device": "cpu", "incomplete": True}
        usual, asked = Worker(roots, **some), Worker(roots, **some, speed="auto")
        assert usual.run(job).record.speed == str(EXACT)
        assert asked.run(job).record.speed == str(faster)


def test_nothing_is_adapted_by_none_nor_left_from_the_job_before(worker):
    first = done(worker.run(a_job("none")))
    assert first.error == first.unadapted_error
    done(worker.run(a_job("ent")))
    again = done(worker.run(a_job("none")))
    for name in ("errors", "ece", "wrong", "weights", "data", "reliability"):
        assert getattr(again.record, name) == getattr(first.record, name)


def test_model_and_images_are_made_once_for_jobs_that_share_them(worker, monkeypatch):
    loads, made = [], []
    real_load, real_apply = _model_cache.load, shifted.apply_shift

    def counted_load(*args, **kwargs):
        loads.append(args)
        return real_load(*args, **kwargs)

    def counted_apply(self, images, numbers):
        made.append(len(numbers))
        return real_apply(self, images, numbers)

    monkeypatch.setattr(_model_cache, "load", counted_load)
    monkeypatch.setattr(shifted, "apply_shift", counted_apply)
    for job in (a_job("none"), a_job("bn"), a_job("ent"), a_job("ent", seed=1)):
        done(worker.run(job))
    assert (len(loads), sum(made)) == (1, 160)
    done(worker.run(a_job("bn", shift="cifar/contrast:2")))
    assert (len(loads), sum(made)) == (1, 320)


def test_a_few_images_only(worker):
    few = done(worker.run(a_job("none", images=40))).record.to_dict()
    assert (few["images"], few["labelled"]) == (40, 40)
    all_of_them = done(worker.run(a_job("none"))).record.to_dict()
    assert all_of_them["images"] == 160
    assert few["data"] != all_of_them["data"]
    one = done(worker.run(a_job("none", images=1))).record.to_dict()
    assert any("hold 1 of 10 classes" in note for note in one["notes"])


def test_forgetting(worker):
    lost = done(worker.run(a_job("ent", forgetting=True))).record.to_dict()["forgetting"]
    assert lost["before"] == done(worker.run(a_job("none", shift=None))).error
    assert lost["images"] == 160
    assert 0 <= lost["after"] <= 100


def test_top5_errors_of_an_adapted_model_take_a_pass_of_their_own(roots):
    job = a_job(batch_size=50)
    run = done(Worker(roots, device="cpu", incomplete=True).run(job)).record
    again = done(Worker(roots, device="cpu", incomplete=True, rescore=True).run(job)).record
    assert run.wrong_top5 is None
    assert 0 < again.wrong_top5 < again.wrong == run.wrong
    assert (again.errors, again.batch_size) == (run.errors, 50)
    assert again.ece == pytest.approx(run.ece, abs=1e-6)


def test_predictions_that_no_plain_model_has_are_those_that_are_scored(roots):
    worker = Worker(roots, device="cpu", incomplete=True, rescore=True)
    unadapted = done(worker.run(a_job("none")))
    lame = replace(a_job("none"), recipe="lame")
    record = done(worker.run(lame)).record
    assert record.errors.final != unadapted.error
    assert record.wrong == round(record.errors.final * record.labelled / 100)
    assert record.wrong_top5 is None


def test_collapse_shows(worker):
    result = done(worker.run(a_job(options={"optimizer.lr": 50.0, "epochs": 3})))
    assert result.record.verdict == "harmful"
    assert result.error > result.record.errors.start + 20
    assert result.record.balance[-1].largest > 0.5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "acclimate:digit"}, "did you mean"),
        ({"model": "py:sweep_nets:plain", "recipe": "bn"}, "only changes batch-norm statistics"),
        ({"dataset": "cifar10"}, "cifar10 needs a root"),
        ({"weights": Weights(path="/nowhere/w.pt", sha256="00")}, "cannot read the weights file"),
        ({"model": "py:sweep_nets:broken", "recipe": "none"}, "ZeroDivisionError"),
    ],
)
def test_a_mistake_is_a_failed_result(worker, tmp_path, monkeypatch, changes, said):
    (tmp_path / "sweep_nets.py").write_text(
        "from torch import nn\n"
        "def plain(): return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n"
        "def broken(): return nn.Sequential(1 / 0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    values = {"model": "acclimate:digits", "dataset": "mnist", "recipe": "ent", **changes}
    result = worker.run(running.Job(**values))
    assert result.status == "failed"
    assert said in result.message
    done(worker.run(a_job("none")))  # and the next one is none the worse for it


def test_a_weights_file_that_changed_since_is_refused(worker, tmp_path):
    file = tmp_path / "w.safetensors"
    file.write_bytes(b"one")
    job = a_job("none", weights=file)
    file.write_bytes(b"another")
    assert "is another than when the plan was made" in worker.run(job).message


def memory_for(size: int, monkeypatch) -> list[int | None]:
    """Fails as a device does that has no room for more than ``size`` images."""
    asked = []
    real = running.adapt

    def small(*args, batch_size=None, **kwargs):
        asked.append(batch_size)
        if batch_size is None or batch_size > size:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return real(*args, batch_size=batch_size, **kwargs)

    monkeypatch.setattr(running, "adapt", small)
    return asked


def test_out_of_memory_halves_the_batch(worker, monkeypatch):
    asked = memory_for(40, monkeypatch)
    record = done(worker.run(a_job())).record.to_dict()
    assert asked == [None, 64, 32]
    assert record["batch_size"] == 32
    notes = " ".join(record["notes"])
    assert "out of memory with batches of 128, tried 64" in notes
    assert "out of memory with batches of 64, tried 32" in notes
    assert "scaled linearly to 0.0025 for batches of 32" in notes


def test_out_of_memory_ends_at_the_smallest_batch(worker, monkeypatch):
    asked = memory_for(4, monkeypatch)
    result = worker.run(a_job())
    assert asked == [None, 64, 32, 16, 8]
    assert result.status == "failed"
    assert "out of memory with batches of 8" in result.message


def test_shifts_of_a_data_set_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "sweep_colours.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def build():\n"
        "    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),\n"
        "                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    draw, labels = np.random.default_rng(0), np.arange(40) % 10
    pixels = draw.integers(0, 256, (240, 32, 32, 3)).astype(np.uint8)
    np.save(tmp_path / "frost-procedural.npy", pixels[:200])
    np.save(tmp_path / "labels.npy", np.tile(labels, 5))
    np.savez(tmp_path / "cifar10-test.npz", images=pixels[200:], labels=labels)
    job = a_job(
        model="py:sweep_colours:build", dataset="cifar10-c", shift="frost:2", forgetting=True
    )
    roots = {"cifar10-c": str(tmp_path)}
    without = Worker(roots, device="cpu", incomplete=True).run(job)
    assert "cifar10-c has none; cifar10 beside it" in without.message
    roots["cifar10"] = str(tmp_path)
    result = done(Worker(roots, device="cpu", incomplete=True).run(job))
    assert (result.job.corruption, result.corruption) == ("frost", "frost-procedural")
    assert result.record.images == result.record.forgetting.images == 40
