"""From parts to tables, mCE and mDE; results kept on disk."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from acclimate.bench.evaluate import Report, evaluate_parts
from acclimate.bench.shifts import Part, image_parts
from acclimate.data import open_images
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.data.shift import Shift
from acclimate.errors import AcclimateError
from acclimate.metrics import ALEXNET_CORRUPTIONS, CORRUPTIONS, DOMAINS, Scoring, mde
from acclimate.models import LoadedModel
from acclimate.models.networks.digits import load_digits_model

IMAGES, LABELS = digits("held-out")
IMAGENET_C = {"data": {"dataset": "imagenet-c"}}


def parts(*shifts, count=60):
    source = open_images(IMAGES[:count], preprocessing=PREPROCESSING, labels=LABELS[:count])
    return image_parts(source, shifts)


def run(*shifts, **options) -> Report:
    options = {"data": {"images": "digits"}, "progress": False, "batch_size": 30, **options}
    return evaluate_parts(load_digits_model(), parts(*shifts), **options)


def part(shift, severity, wrong, labelled=1000):
    return {
        "shift": shift,
        "severity": severity,
        "images": labelled,
        "labelled": labelled,
        "wrong": wrong,
    }


def test_the_mce_of_alexnet_is_100():
    errors = ALEXNET_CORRUPTIONS
    rows = [part(n, s, round(errors[n] * 1000), 100_000) for n in CORRUPTIONS for s in range(1, 6)]
    report = Report(IMAGENET_C, rows)
    assert report.relative_error().value == pytest.approx(100, abs=1e-3)
    assert report.relative_error().metric == "mCE"
    mean = sum(errors[name] for name in CORRUPTIONS) / 15
    assert report.error().value == pytest.approx(mean, abs=1e-3)
    assert report.error().images == 7_500_000


def test_the_mce_is_of_imagenet_alone_and_of_all_of_it():
    rows = [part(name, s, 100) for name in CORRUPTIONS for s in range(1, 6)]
    assert Report({"data": {"dataset": "cifar10-c"}}, rows).relative_error() is None
    assert Report({"data": {"images": "imagenet.npz"}}, rows).relative_error() is None
    made = [{**row, "preset": "imagenet"} for row in rows]
    assert Report({"data": {"images": "a.npz"}}, made).relative_error().metric == "mCE"
    assert Report(IMAGENET_C, rows[1:]).relative_error() is None
    procedural = [{**r, "shift": r["shift"].replace("frost", "frost-procedural")} for r in rows]
    notes = Report(IMAGENET_C, procedural).relative_error().notes
    assert any("frost-procedural" in note for note in notes)
    plain = Report(IMAGENET_C, procedural).to_dict()
    assert plain["mCE"]["notes"] == list(notes)
    assert len(plain["mCE"]["parts"]) == 15


def test_domains_have_an_mde():
    wrong = dict(zip(DOMAINS, (760, 896, 651, 992, 401, 820), strict=True))
    report = Report(
        {"data": {"dataset": "imagenet-d"}}, [part(d, None, n) for d, n in wrong.items()]
    )
    assert report.table() is None
    assert report.relative_error().value == mde({d: n / 10 for d, n in wrong.items()}).value


def test_answers_through_a_map_are_looked_into():
    logits = torch.eye(6)[[0, 0, 1, 2, 5, 5]].view(6, 6, 1, 1)
    source = open_images(logits, labels=[0, 1, 0, 1, 0, 1])
    source.scoring = Scoring(label_of=torch.tensor([0, 0, 1, 1, -1, -1]))
    source.class_names = ("bird", "dog")
    model = LoadedModel(name="answers", model=nn.Flatten())
    sketch = Part(shift=Shift(name="sketch"), open=lambda: source)
    data = {"dataset": "imagenet-d"}
    (record,) = evaluate_parts(model, [sketch], data=data, progress=False).parts
    assert record["wrong"] == 3  # a dog taken for a bird, and two answers that are neither
    assert record["filtered_error"] == 25
    assert record["unmappable_percent"] == pytest.approx(100 / 3)
    assert (record["most_predicted"][0]["name"], record["most_predicted"][0]["count"]) == ("0", 2)
    (pair,) = record["confusions"]
    assert (pair["label"], pair["answer"], pair["count"]) == ("dog", "bird", 1)


def test_every_part_is_scored():
    report = run("cifar/fog:1", "cifar/fog:5", "cifar/contrast:5")
    assert [(p["shift"], p["severity"]) for p in report.parts] == [
        ("fog", 1),
        ("fog", 5),
        ("contrast", 5),
    ]
    table = report.table()
    assert table.by_corruption()["fog"].images == 120
    assert report.parts[1]["wrong"] > report.parts[0]["wrong"]
    assert 0 < report.mean_of("ece").value < 1
    assert report.mean_of("ece").images == 180
    assert report.top5_error().value < report.error().value
    assert report.mean_of("unadapted_error") is None
    json.dumps(report.to_dict(interval=0.9))


def test_adapted_to_each_part_from_the_source_anew():
    clean = open_images(IMAGES, preprocessing=PREPROCESSING, labels=LABELS)
    both = run("cifar/fog:5", "cifar/contrast:5", recipe="bn", clean=clean)
    alone = run("cifar/contrast:5", recipe="bn")
    for key in ("wrong", "unadapted_error"):
        assert both.parts[1][key] == alone.parts[0][key]
    plain = run("cifar/fog:5")
    wrong = 100 * plain.parts[0]["wrong"] / 60
    assert both.parts[0]["unadapted_error"] == pytest.approx(wrong)
    assert both.parts[0]["wrong"] < plain.parts[0]["wrong"]
    lost = both.parts[0]["forgetting"]
    assert lost["images"] == len(IMAGES)
    assert 0 <= lost["before"] < 20
    assert 0 <= lost["after"] < 30


def test_before_and_after_the_update_are_kept_apart():
    learnt = run("cifar/fog:3", recipe="ent", options={"epochs": 2}).parts[0]
    assert learnt["before_update_error"] is not None
    assert len(learnt["after_epoch_errors"]) == 2


def test_finished_parts_are_not_done_again(tmp_path):
    run("cifar/fog:1", "cifar/fog:2", out=tmp_path)
    kept = json.loads((tmp_path / "evaluation.json").read_text())
    report = run("cifar/fog:1", "cifar/snow:2", out=tmp_path)
    assert report.parts[0] == kept["parts"][0]["result"]  # its seconds, too
    names = [p["name"] for p in json.loads((tmp_path / "evaluation.json").read_text())["parts"]]
    assert names == ["fog:1", "fog:2", "snow:2"]


def test_an_old_result_is_not_shown_for_other_images(tmp_path):
    run("cifar/fog:1", out=tmp_path)
    options = {"data": {"images": "digits"}, "progress": False, "batch_size": 30, "out": tmp_path}
    with pytest.raises(AcclimateError, match=r"fog:1 is of other images"):
        evaluate_parts(load_digits_model(), parts("cifar/fog:1", count=50), **options)
    relabelled = open_images(
        IMAGES[:60], preprocessing=PREPROCESSING, labels=(LABELS[:60] + 1) % 10
    )
    with pytest.raises(AcclimateError, match=r"other images or labels"):
        evaluate_parts(load_digits_model(), image_parts(relabelled, ["cifar/fog:1"]), **options)


def test_clean_images_are_part_of_what_is_kept(tmp_path):
    clean = open_images(IMAGES, preprocessing=PREPROCESSING, labels=LABELS)
    run("cifar/fog:1", out=tmp_path, recipe="bn")
    with pytest.raises(AcclimateError, match=r"another evaluation .clean"):
        run("cifar/fog:1", out=tmp_path, recipe="bn", clean=clean)
    unlabelled = open_images(IMAGES, preprocessing=PREPROCESSING)
    with pytest.raises(AcclimateError, match="expected labelled clean images"):
        run("cifar/fog:1", recipe="bn", clean=unlabelled)


def test_another_evaluation_is_not_mixed_in(tmp_path):
    run("cifar/fog:1", out=tmp_path)
    before = (tmp_path / "evaluation.json").read_bytes()
    with pytest.raises(AcclimateError, match=r"another evaluation .recipe"):
        run("cifar/fog:1", out=tmp_path, recipe="bn")
    assert (tmp_path / "evaluation.json").read_bytes() == before
    (tmp_path / "evaluation.json").write_text("[]")
    with pytest.raises(AcclimateError, match="cannot be used"):
        run("cifar/fog:1", out=tmp_path)
