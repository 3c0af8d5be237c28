"""``acclimate pretrain``: trains, writes, resumes, and reports mistakes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from acclimate.cli import main
from acclimate.models import load

pytestmark = pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, shape in (("cifar10", (32, 32, 3)), ("mnist", (28, 28)), ("mnist-m", (32, 32, 3))):
        for split in ("train", "test"):
            labels = np.arange(40) % 10
            images = rng.integers(0, 256, (40, *shape), dtype=np.uint8)
            np.savez(f"{name}-{split}.npz", images=images, labels=labels)
    return tmp_path


def pretrain(*words: str) -> int:
    common = ["--root", ".", "--epochs", "1"]
    common += [] if "--model" in words else ["--model", "acclimate:wrn-26-1-bn"]
    common += ["--batch-size", "20", "--incomplete", "--quiet", "--device", "cpu"]
    return main(["pretrain", *common, *words])


def test_a_model_that_loads_back(capfd):
    assert pretrain("--out", "run", "--json") == 0
    record = json.loads(capfd.readouterr().out)
    assert record["error"]["source"]["images"] == 40
    assert record["plan"]["epochs"] == 1
    loaded = load("acclimate:wrn-26-1-bn", weights="run/model.safetensors")
    assert loaded.classes.names[0] == "airplane"
    assert pretrain("--out", "run", "--json") == 0
    again = json.loads(capfd.readouterr().out)
    assert again["losses"] == record["losses"]
    assert again["error"] == record["error"]


def test_options_reach_method_and_plan_in_their_types(capfd):
    words = ["--set", "flip=false", "--set", "margin=2", "--set", "weight_decay=0"]
    assert pretrain("--out", "run", "--json", *words) == 0
    record = json.loads(capfd.readouterr().out)
    assert record["method"] == "Vanilla(flip=False, margin=2)"
    assert record["plan"]["weight_decay"] == 0


def test_another_data_set_is_not_passed_off_as_the_old_one(capfd):
    assert pretrain("--out", "run") == 0
    assert pretrain("--out", "run", "--dataset", "mnist") == 2
    assert "another training (data" in capfd.readouterr().err


def test_two_domains(capfd):
    words = ["--method", "dann", "--dataset", "mnist", "--target", "mnist-m", "--out", "run"]
    assert pretrain(*words) == 0
    out = capfd.readouterr().out
    assert "error on the source" in out
    assert "error on the target" in out


def test_the_file_knows_the_classes_it_was_trained_on():
    assert pretrain("--dataset", "mnist", "--out", "run") == 0
    loaded = load("acclimate:wrn-26-1-bn", weights="run/model.safetensors")
    assert loaded.classes.names[3] == "3"


def test_a_target_seen_through_corruptions(capfd):
    words = ["--method", "uda-ss", "--target", "cifar10", "--out", "run", "--json"]
    words += ["--target-shift", "cifar/brightness:3", "--target-shift", "cifar/contrast:5"]
    assert pretrain(*words) == 0
    record = json.loads(capfd.readouterr().out)
    assert list(record["error"]) == [
        "source",
        "target cifar/brightness:3",
        "target cifar/contrast:5",
    ]
    assert record["target_shifts"] == ["cifar/brightness:3", "cifar/contrast:5"]


def test_a_target_that_is_not_learnt_from_is_said_to_be_scored_alone(capfd, here):
    (here / "mnist-m-train.npz").unlink()
    assert pretrain("--dataset", "mnist", "--target", "mnist-m", "--out", "run", "--json") == 0
    printed = capfd.readouterr()
    record = json.loads(printed.out)
    assert record["target_learnt_from"] is False
    assert list(record["error"]) == ["source", "target"]
    assert "note: vanilla does not learn from the target; mnist-m is only scored" in printed.err
    assert pretrain("--dataset", "mnist", "--out", "run", "--json") == 0
    alone = json.loads(capfd.readouterr().out)
    assert alone["notes"] == []
    assert alone["losses"] == record["losses"]


def test_a_trained_model_is_gone_on_with_and_the_summary_says_so(capfd):
    assert pretrain("--out", "first", "--json") == 0
    first = json.loads(capfd.readouterr().out)
    assert first["starts_from"] is None
    assert first["notes"] == []
    assert pretrain("--weights", "first/model.safetensors", "--out", "second", "--json") == 0
    printed = capfd.readouterr()
    second = json.loads(printed.out)
    assert second["starts_from"].startswith("first/model.safetensors")
    assert second["losses"][0] < first["losses"][0]
    assert "starts from weights that were trained before" in second["notes"][0]
    assert f"note: {second['notes'][0]}" in printed.err
    assert pretrain("--out", "second") == 2
    assert "(weights: first/model.safetensors, now None)" in capfd.readouterr().err


def test_a_trained_model_is_no_bare_architecture(capfd):
    words = ["--model", "acclimate:wrn-26-1-mt-ct-mnist-usps", "--dataset", "mnist"]
    assert pretrain(*words, "--out", "run", "--json") == 0
    record = json.loads(capfd.readouterr().out)
    assert "trained for this package on MNIST" in record["starts_from"]


def test_compile_reaches_the_training(capfd, monkeypatch):
    real, compiled = torch.compile, []

    def eager(model):
        compiled.append(type(model).__name__)
        return real(model, backend="eager")

    monkeypatch.setattr(torch, "compile", eager)
    assert pretrain("--compile", "--out", "run") == 0
    assert compiled == ["ResNet26"]
    assert load("acclimate:wrn-26-1-bn", weights="run/model.safetensors").classes is not None


def test_a_model_has_to_be_named(capfd):
    assert main(["pretrain", "--root", ".", "--out", "run"]) == 2
    assert "expected --model" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("--method augmx", "did you mean 'augmix'"),
        ("--method vanilla --set q=1", "unknown option 'q'"),
        ("--set flip=maybe", "flip: expected bool, got 'maybe'"),
        ("--set margin=2.5", "margin: expected int"),
        ("--lr nan", "expected lr > 0, got nan"),
        ("--seed 99999999999999999999", "expected a seed"),
        ("--out /proc/nope", "cannot write to '/proc/nope'"),
        ("--method dann", "learns from images of a target"),
        ("--target-shift cifar/fog:3", "a shift of the target needs a target"),
        ("--target cifar10 --target-shift fog", "expected a shift as PRESET/NAME:SEVERITY"),
        ("--set optimizer=sdg", "expected an optimizer sgd or adam"),
        ("--set margin=40", "expected a margin >= 0 and < 32"),
        ("--set margin=-1", "expected margin >= 0, got -1"),
        ("--set momentum=nan", "expected momentum >= 0 and < 1, got nan"),
        ("--set clip=0", "expected clip > 0, got 0.0"),
        ("--set epochs=3", "expected --epochs 3"),
        ("--method uda-ss --set tasks=foo", "unknown task of uda-ss 'foo'"),
        ("--method dino --set hidden=-4", "expected hidden >= 1, got -4"),
        ("--method self-ensembling --set momentum=0.9", "plan.momentum or method.momentum"),
        ("--method dann --set colour=true", "expected intensity=true with colour=true"),
        ("--method dann --dataset mnist --target cifar10", "with the classes of mnist, got cifar"),
        ("--weights nowhere.safetensors", "nowhere.safetensors"),
        ("--lr 0", "expected lr > 0"),
        ("--epochs -1", "expected epochs > 0"),
        ("--dataset minst", "did you mean 'mnist'"),
        ("--root nowhere", "nothing is there"),
    ],
)
def test_mistakes(words, printed, capfd):
    assert pretrain("--out", "run", *words.split()) == 2
    assert printed in capfd.readouterr().err
