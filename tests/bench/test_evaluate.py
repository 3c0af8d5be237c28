"""One model over many shifts: tables, mCE and mDE; results in a folder, from which it resumes."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from acclimate.bench import Job, Result, Store
from acclimate.bench import worker as running
from acclimate.bench.evaluate import EvaluationReport, evaluate_shifts
from acclimate.bench.worker import Worker
from acclimate.data.digits import digits
from acclimate.errors import AcclimateError
from acclimate.metrics import ALEXNET_CORRUPTIONS, CORRUPTIONS, DOMAINS, mde
from acclimate.models.networks.digits import load_digits_model

IMAGES, LABELS = digits("held-out")


@pytest.fixture
def images(tmp_path) -> Path:
    return write(tmp_path / "images.npz", 60)


def write(path: Path, count: int, *, shifted_labels: int = 0) -> Path:
    np.savez(path, images=IMAGES[:count], labels=(LABELS[:count] + shifted_labels) % 10)
    return path


def run(images: Path, *shifts: str, **options) -> EvaluationReport:
    options = {"progress": False, "batch_size": 30, "device": "cpu", **options}
    return evaluate_shifts(load_digits_model(), images, shifts=shifts, **options)


def result(
    shift: str, wrong: int, labelled: int = 1000, *, dataset: str = "imagenet-c", **record
) -> Result:
    record |= {"images": labelled, "labelled": labelled, "wrong": wrong}
    job = Job(model="m", dataset=dataset, recipe="none", shift=shift)
    return Result(job=job, record={"errors": {"final": 100 * wrong / labelled}, **record})


def all_corruptions(wrong: int = 100, *, preset: str = "", **values) -> list[Result]:
    names = (f"{preset}{name}:{severity}" for name in CORRUPTIONS for severity in range(1, 6))
    return [result(name, wrong, **values) for name in names]


# Means.


def test_the_mce_of_alexnet_is_100():
    errors = ALEXNET_CORRUPTIONS
    rows = [
        result(f"{n}:{s}", round(errors[n] * 1000), 100_000)
        for n in CORRUPTIONS
        for s in range(1, 6)
    ]
    report = EvaluationReport(rows)
    assert report.relative_error().value == pytest.approx(100, abs=1e-3)
    assert report.relative_error().metric == "mCE"
    mean = sum(errors[name] for name in CORRUPTIONS) / 15
    assert report.error().value == pytest.approx(mean, abs=1e-3)
    assert report.error().images == 7_500_000


def test_the_mce_is_of_imagenet_alone_and_of_all_of_it():
    def metric(rows: list[Result]) -> str | None:
        relative = EvaluationReport(rows).relative_error()
        return None if relative is None else relative.metric

    assert metric(all_corruptions()) == "mCE"
    assert metric(all_corruptions()[1:]) is None
    assert metric(all_corruptions(dataset="cifar10-c")) is None
    assert metric(all_corruptions(dataset="folder", preset="cifar/")) is None
    assert metric(all_corruptions(dataset="folder", preset="imagenet/")) == "mCE"


def test_a_frost_of_our_own_is_noted_with_the_mce():
    rows = [
        replace(r, record=replace(r.record, corruption="frost-procedural"))
        if r.corruption == "frost"
        else r
        for r in all_corruptions()
    ]
    plain = EvaluationReport(rows).to_dict()
    assert any("frost-procedural" in note for note in plain["mCE"]["notes"])
    assert len(plain["mCE"]["parts"]) == 15


def test_domains_have_an_mde():
    wrong = dict(zip(DOMAINS, (760, 896, 651, 992, 401, 820), strict=True))
    report = EvaluationReport([result(d, n, dataset="imagenet-d") for d, n in wrong.items()])
    assert report.table() is None
    assert report.relative_error().value == mde({d: n / 10 for d, n in wrong.items()}).value


def test_two_draws_of_a_shift_are_both_counted():
    rows = [result("cifar/fog:3@1", 100), result("cifar/fog:3@2", 300)]
    assert EvaluationReport(rows).error().value == 20
    assert EvaluationReport(rows).error().images == 2000


def test_means_leave_clean_images_out_where_there_are_shifted_ones():
    job = Job(model="m", dataset="folder", recipe="none")
    clean = replace(result("cifar/fog:1", 0, ece=0.0), job=job)
    shifted = [result("cifar/fog:1", 100, ece=0.1), result("cifar/fog:5", 300, ece=0.3)]
    report = EvaluationReport([clean, *shifted])
    assert report.error() == EvaluationReport(shifted).error()
    assert report.error().value == 20
    assert report.error().images == 2000
    assert report.mean_of([0.0, 0.1, 0.3]).value == pytest.approx(0.2)
    assert EvaluationReport([clean]).error().value == 0
    clean = replace(clean, job=replace(job, dataset="imagenet"))
    made = all_corruptions(dataset="imagenet", preset="imagenet/")
    assert EvaluationReport([clean, *made]).relative_error().metric == "mCE"


# What is run.


def test_every_shift_is_scored(images):
    report = run(images, "cifar/fog:1", "cifar/fog:5", "cifar/contrast:5")
    run_as = report.to_dict()["run"]
    assert (run_as["dataset"], run_as["root"], run_as["seed"]) == ("folder", str(images), 0)
    parts = report.to_dict(interval=0.9)["parts"]
    asked = [("fog", 1), ("fog", 5), ("contrast", 5)]
    assert [(part["shift"], part["severity"]) for part in parts] == asked
    assert report.table().by_corruption()["fog"].images == 120
    assert parts[1]["wrong"] > parts[0]["wrong"]
    calibration = report.mean_of([each.ece for each in report.results])
    assert 0 < calibration.value < 1
    assert calibration.images == 180
    assert report.mean_of([None, 1.0, 2.0]) is None
    assert report.top5_error().value < report.error().value
    json.dumps(parts)


def test_images_as_they_are_and_shifted(images):
    clean, fog = run(images, "clean", "cifar/fog:5").to_dict()["parts"]
    assert (clean["shift"], fog["shift"]) == ("clean", "fog")
    assert clean["wrong"] < fog["wrong"]
    assert clean["wrong"] == run(images).to_dict()["parts"][0]["wrong"]


def test_the_results_are_those_of_a_job_of_a_plan(images):
    options = {"optimizer.lr": 0.01, "epochs": 2}
    (found,) = run(images, "cifar/fog:3", recipe="ent", options=options, batch_size=None).results
    job = Job.of(
        model="acclimate:digits",
        dataset="folder",
        recipe="ent",
        shift="cifar/fog:3",
        options=options,
    )
    planned = Worker({"folder": images}, device="cpu").run(job)
    assert found.key == planned.key
    assert found.record.errors == planned.record.errors
    assert len(found.record.errors.before_update) == len(found.record.errors.after_epoch) == 2


def test_adapted_to_each_shift_from_the_source_anew(images, tmp_path):
    clean = write(tmp_path / "clean.npz", len(IMAGES))
    both = run(images, "cifar/fog:5", "cifar/contrast:5", recipe="bn", clean=clean).results
    alone = run(images, "cifar/contrast:5", recipe="bn").results
    assert both[1].record.errors == alone[0].record.errors
    plain = run(images, "cifar/fog:5").results[0]
    assert both[0].unadapted_error == plain.error > both[0].error
    lost = both[0].record.forgetting
    assert lost.images == len(IMAGES)
    assert 0 <= lost.before < 20
    assert 0 <= lost.after < 30


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"options": {"epochs": 2}}, "'none' adapts nothing and takes no options"),
        ({"clean": "images.npz"}, "'none' adapts nothing and takes no clean images"),
        ({"dataset": "cifar10-c"}, "has no cifar/fog:1 corruptions|leave the preset out"),
        ({"batch_size": 0}, "batch_size >= 1, got 0"),
    ],
)
def test_mistakes(images, options, said):
    with pytest.raises(AcclimateError, match=said):
        run(images, "cifar/fog:1", **options)


def test_clean_images_need_labels_before_anything_is_adapted(images, tmp_path, monkeypatch):
    np.savez(tmp_path / "unlabelled.npz", images=IMAGES)
    monkeypatch.setattr(running, "adapt", None)
    with pytest.raises(AcclimateError, match="expected labelled clean images"):
        run(images, "cifar/fog:1", recipe="bn", clean=tmp_path / "unlabelled.npz")
    with pytest.raises(AcclimateError, match="expected labelled images to score"):
        run(tmp_path / "unlabelled.npz", "cifar/fog:1", recipe="bn")


# Resuming.


def jobs_run(monkeypatch) -> list[str | None]:
    """The shifts that are run from now on, in order."""
    shifts, real = [], Worker.run

    def watched(self: Worker, job: Job, **options) -> Result:
        shifts.append(job.shift)
        return real(self, job, **options)

    monkeypatch.setattr(Worker, "run", watched)
    return shifts


def test_what_was_done_before_a_failure_is_not_done_again(images, tmp_path, monkeypatch):
    real = running.evaluate

    def lost(model, source, **options):
        if "contrast" in str(getattr(source, "shift", "")):
            raise RuntimeError("the disk is gone")
        return real(model, source, **options)

    out, shifts = tmp_path / "scores", jobs_run(monkeypatch)
    monkeypatch.setattr(running, "evaluate", lost)
    with pytest.raises(AcclimateError, match=r"^cifar/contrast:2: .*the disk is gone"):
        run(images, "cifar/fog:1", "cifar/contrast:2", "cifar/fog:3", out=out)
    monkeypatch.setattr(running, "evaluate", real)
    report = run(images, "cifar/fog:1", "cifar/contrast:2", "cifar/fog:3", out=out)
    assert shifts == ["cifar/fog:1", "cifar/contrast:2", "cifar/contrast:2", "cifar/fog:3"]
    assert json.loads((out / "evaluation.json").read_text()) == report.to_dict()


def test_one_folder_keeps_many_recipes(images, tmp_path, monkeypatch):
    first = run(images, "cifar/fog:1", out=tmp_path)
    run(images, "cifar/fog:1", recipe="bn", out=tmp_path)
    run(images, "cifar/fog:1", batch_size=20, out=tmp_path)
    shifts = jobs_run(monkeypatch)
    assert run(images, "cifar/fog:1", out=tmp_path).results == first.results  # its seconds, too
    assert not shifts
    assert len(Store(tmp_path / "results.db").select(["key"]).rows) == 3


def test_a_stored_result_is_not_shown_for_others(images, tmp_path):
    clean = write(tmp_path / "clean.npz", 50)
    options = {"recipe": "bn", "clean": clean, "out": tmp_path / "scores"}
    run(images, "cifar/fog:1", **options)

    def refuses(what: str, **changes) -> None:
        with pytest.raises(
            AcclimateError, match=rf"fog:1 in .* of other {what}: .* choose another"
        ):
            run(images, "cifar/fog:1", **{**options, **changes})

    write(clean, 40)
    refuses("clean images")
    write(clean, 50)
    write(images, 50)
    refuses("images or labels")
    write(images, 60, shifted_labels=1)
    refuses("images or labels")
    write(images, 60)
    run(images, "cifar/fog:1", **options)


def test_a_stored_result_is_not_shown_for_another_model_or_preprocessing(images, tmp_path):
    run(images, "cifar/fog:1", out=tmp_path)
    loaded = load_digits_model()
    options = {"shifts": ["cifar/fog:1"], "batch_size": 30, "out": tmp_path, "progress": False}
    brighter = replace(loaded, preprocessing=replace(loaded.preprocessing, mean=(0.1,)))
    with pytest.raises(AcclimateError, match=r"other preprocessing: expected 8×8, mean \(0.3,\)"):
        evaluate_shifts(brighter, images, **options)
    next(loaded.model.parameters()).data.mul_(2)
    with pytest.raises(AcclimateError, match="of other weights: expected fedf195b, got"):
        evaluate_shifts(loaded, images, **options)


def test_a_stored_result_is_not_shown_for_a_changed_recipe(images, tmp_path, monkeypatch):
    def write_recipe(lr: float, momentum: float) -> None:
        options = {"optimizer.lr": lr, "optimizer.momentum": momentum, "epochs": 1}
        (tmp_path / "own_recipe.py").write_text(
            f"import acclimate\ndef mine():\n    return acclimate.get_recipe('ent', {options})\n"
        )
        monkeypatch.delitem(sys.modules, "own_recipe", raising=False)
        importlib.invalidate_caches()

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    options = {"recipe": "py:own_recipe:mine", "out": tmp_path / "scores"}
    write_recipe(0.01, 0.9)
    first = run(images, "cifar/fog:1", **options)
    assert run(images, "cifar/fog:1", **options).results == first.results
    write_recipe(0.01, 0.5)
    said = r"other options of the recipe: expected recipe.optimizer.momentum 0.9, got 0.5"
    with pytest.raises(AcclimateError, match=said):
        run(images, "cifar/fog:1", **options)
    write_recipe(0.02, 0.9)
    with pytest.raises(AcclimateError, match=r"expected recipe.optimizer.lr 0.01, got 0.02"):
        run(images, "cifar/fog:1", **options)


def test_a_store_that_cannot_be_written_to_is_refused_before_anything_runs(
    images, tmp_path, monkeypatch
):
    def refused(self: Store) -> None:
        raise AcclimateError("it cannot be written to")

    run(images, "cifar/fog:1", out=tmp_path)
    monkeypatch.setattr(Store, "check_writable", refused)
    shifts = jobs_run(monkeypatch)
    run(images, "cifar/fog:1", out=tmp_path)  # all is there
    with pytest.raises(AcclimateError, match="cannot be written to"):
        run(images, "cifar/fog:2", out=tmp_path)
    assert not shifts


def test_another_copy_of_a_data_set_with_its_own_shifts_shows(tmp_path, monkeypatch):
    """These are opened for the first stored result alone."""
    monkeypatch.setattr("acclimate.bench.evaluate.check_shifts", lambda *_, **__: None)
    (tmp_path / "colours.py").write_text(
        "from torch import nn\n"
        "def build(): return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from acclimate.models import load

    loaded = load("py:colours:build")
    options = {"dataset": "cifar10-c", "shifts": ["fog:1", "fog:2"], "incomplete": True}
    options |= {"out": tmp_path / "scores", "progress": False}
    for seed in (0, 1):
        root = tmp_path / str(seed)
        root.mkdir()
        pixels = np.random.default_rng(seed).integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)
        np.save(root / "fog.npy", pixels)
        np.save(root / "labels.npy", np.arange(50) % 10)
    report = evaluate_shifts(loaded, tmp_path / "0", **options)
    assert evaluate_shifts(loaded, tmp_path / "0", **options).results == report.results
    with pytest.raises(AcclimateError, match=r"fog:1 in .* of other images or labels"):
        evaluate_shifts(loaded, tmp_path / "1", **options)


def test_folders_that_cannot_be_used(images, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(AcclimateError, match=r"cannot write to .*file': File exists"):
        run(images, out=tmp_path / "file")
    old = tmp_path / "old"
    old.mkdir()
    (old / "evaluation.json").write_text('{"run": {}, "parts": []}')
    with pytest.raises(AcclimateError, match=r"expected results.db beside evaluation.json"):
        run(images, out=old)
    assert (old / "evaluation.json").read_text() == '{"run": {}, "parts": []}'
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "results.db").write_text("no database")
    with pytest.raises(AcclimateError, match="not an SQLite file"):
        run(images, out=broken)
