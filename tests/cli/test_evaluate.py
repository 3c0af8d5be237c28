"""``acclimate evaluate``, and shifts and data sets in ``acclimate adapt``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from acclimate.cli import main
from acclimate.data.digits import digits

IMAGES, LABELS = digits("held-out")
MODEL = ["--model", "acclimate:digits"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("clean.npz", images=IMAGES[:80], labels=LABELS[:80])
    np.savez("unlabelled.npz", images=IMAGES[:80])
    return tmp_path


def evaluate(*words: str) -> int:
    return main(["evaluate", *MODEL, *words, "--quiet"])


def test_clean_images(capfd):
    assert evaluate("--images", "clean.npz") == 0
    out = capfd.readouterr().out
    assert "mean error" in out
    assert "(80 images)" in out


def test_a_table_by_corruption_and_severity(capfd):
    words = ["--images", "clean.npz", "--shift", "cifar/fog", "--shift", "cifar/contrast:5"]
    assert evaluate(*words, "--interval", "0.95", "--out", "scores") == 0
    out = capfd.readouterr().out
    table = [line.split() for line in out.splitlines() if line.startswith(("fog", "contrast"))]
    assert [row[0] for row in table] == ["fog", "contrast"]
    assert table[0][-1] == "400"
    assert table[1][1:5] == ["-"] * 4
    assert "95 % CI" in out
    assert json.loads(Path("scores/evaluation.json").read_text())["parts"][0]["name"] == "fog:1"
    assert evaluate(*words, "--json", "--out", "scores") == 0
    record = json.loads(capfd.readouterr().out)
    assert len(record["parts"]) == 6
    assert f"{record['error']['value']:.1f} %" in out


def test_adapted_with_forgetting(capfd):
    words = ["--images", "clean.npz", "--shift", "cifar/fog:5", "--recipe", "ent"]
    assert evaluate(*words, "--set", "epochs=1", "--clean", "clean.npz") == 0
    out = capfd.readouterr().out
    for said in ("mean error unadapted", "mean error before update", "error on the source"):
        assert said in out


def test_adapt_to_a_shift_resumes_like_any_run(capfd):
    words = ["adapt", *MODEL, "--images", "clean.npz", "--shift", "cifar/fog:5", "--json"]
    words += ["--recipe", "bn", "--out", "run", "--quiet"]
    assert main(words) in (0, 3)
    first = capfd.readouterr().out
    assert main(words) in (0, 3)
    assert capfd.readouterr().out == first
    assert json.loads(Path("run/summary.json").read_text())["run"]["shift"] == "cifar/fog:5"
    clean = [word for word in words if not word.startswith(("cifar", "--shift", "run", "--out"))]
    assert main(clean) in (0, 3)
    error = json.loads(capfd.readouterr().out)["error"]
    assert error["before"] < json.loads(first)["error"]["before"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "expected --model, and --images or --dataset"),
        ("--images clean.npz --dataset mnist", "got both"),
        ("--images clean.npz --root x", "--root needs --dataset"),
        ("--images clean.npz --split x", "--split needs --dataset"),
        ("--images nowhere", "no such folder or file"),
        ("--images clean.npz --set a=b", "--set needs --recipe"),
        ("--images clean.npz --clean clean.npz", "--clean needs --recipe"),
        ("--images clean.npz --recipe ent --clean nowhere", "check --clean"),
        ("--images clean.npz --recipe entt", "did you mean 'ent'"),
        ("--images clean.npz --interval 95", "between 0 and 1"),
        ("--images clean.npz --shift fog:3", "such as imagenet/fog:3"),
        ("--images clean.npz --shift cifar/fog:8", "1, 2, 3, 4 or 5"),
        ("--images clean.npz --batch-size 0", "batch_size >= 1"),
        ("--images unlabelled.npz", "expected labelled images"),
        ("--dataset minst --root .", "did you mean 'mnist'"),
        ("--dataset mnist --root . --split tset", "did you mean 'test'"),
    ],
)
def test_mistakes(words, said, capfd):
    assert evaluate(*words.split()) == 2
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert said in err


def test_a_data_set_without_its_root_says_what_to_get(capfd):
    assert evaluate("--dataset", "imagenet-c") == 2
    err = capfd.readouterr().err
    for said in ("needs --root", "65 GB", "zenodo", "gaussian_noise/1/n01440764"):
        assert said in err
    assert main(["adapt", *MODEL, "--dataset", "cifar10-c", "--root", "nowhere"]) == 2
    assert "one has to be chosen" in capfd.readouterr().err


def test_what_can_be_listed(capfd):
    assert main(["list", "datasets", "--json"]) == 0
    assert {"imagenet-c", "cifar10-c", "fmow"} <= set(json.loads(capfd.readouterr().out))
    assert main(["list", "corruptions", "f*"]) == 0
    assert [line.split() for line in capfd.readouterr().out.splitlines()] == [
        ["frost", "test"],
        ["fog", "test"],
    ]


def test_a_model_that_cannot_take_the_images_is_a_message(tmp_path, capfd):
    np.savez(tmp_path / "colour.npz", images=np.zeros((4, 9, 9, 3), np.uint8), labels=[0, 1, 2, 3])
    words = ["--model", "acclimate:digits", "--images", str(tmp_path / "colour.npz")]
    assert main(["evaluate", *words, "--size", "8", "--quiet", "--device", "cpu"]) == 2
    err = capfd.readouterr().err
    assert "the model failed on images of shape 4 × 3 × 8 × 8" in err
    assert "Traceback" not in err
