"""``acclimate pretrain``: trains, writes, goes on, and says what is wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest

from acclimate.cli import main
from acclimate.models import load


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
    common = ["--model", "acclimate:wrn-26-1-bn", "--root", ".", "--epochs", "1"]
    common += ["--batch-size", "20", "--incomplete", "--quiet", "--device", "cpu"]
    return main(["pretrain", *common, *words])


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
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


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_options_reach_method_and_plan_in_their_types(capfd):
    words = ["--set", "flip=false", "--set", "margin=2", "--set", "weight_decay=0"]
    assert pretrain("--out", "run", "--json", *words) == 0
    record = json.loads(capfd.readouterr().out)
    assert record["method"] == "Vanilla(flip=False, margin=2)"
    assert record["plan"]["weight_decay"] == 0


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_another_data_set_is_not_passed_off_as_the_old_one(capfd):
    assert pretrain("--out", "run") == 0
    assert pretrain("--out", "run", "--dataset", "mnist") == 2
    assert "another training (data" in capfd.readouterr().err


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_two_domains(capfd):
    words = ["--method", "dann", "--dataset", "mnist", "--target", "mnist-m", "--out", "run"]
    assert pretrain(*words) == 0
    out = capfd.readouterr().out
    assert "error on the source" in out
    assert "error on the target" in out


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_the_file_knows_the_classes_it_was_trained_on():
    assert pretrain("--dataset", "mnist", "--out", "run") == 0
    loaded = load("acclimate:wrn-26-1-bn", weights="run/model.safetensors")
    assert loaded.classes.names[3] == "3"


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
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


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--method augmx", "did you mean 'augmix'"),
        ("--method vanilla --set q=1", "unknown option 'q'"),
        ("--set flip=maybe", "flip: expected bool, got 'maybe'"),
        ("--set margin=2.5", "margin: expected int"),
        ("--lr nan", "expected lr > 0, got nan"),
        ("--seed 99999999999999999999", "expected a seed"),
        ("--out /proc/nope", "cannot write to --out"),
        ("--method dann", "learns from pictures of a target"),
        ("--target-shift cifar/fog:3", "a shift of the target needs a target"),
        ("--target cifar10 --target-shift fog", "expected a shift as PRESET/NAME:SEVERITY"),
        ("--set optimizer=sdg", "expected an optimizer sgd or adam"),
        ("--lr 0", "expected lr > 0"),
        ("--epochs -1", "expected epochs > 0"),
        ("--dataset minst", "did you mean 'mnist'"),
        ("--root nowhere", "nothing is there"),
    ],
)
def test_mistakes(words, said, capfd):
    assert pretrain("--out", "run", *words.split()) == 2
    assert said in capfd.readouterr().err
