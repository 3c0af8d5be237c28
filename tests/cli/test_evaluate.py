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
    assert "written to scores: results.db, evaluation.json" in out
    assert evaluate(*words, "--json", "--out", "scores") == 0
    record = json.loads(capfd.readouterr().out)
    assert record == json.loads(Path("scores/evaluation.json").read_text())
    assert [(part["shift"], part["severity"]) for part in record["parts"]][4:] == [
        ("fog", 5),
        ("contrast", 5),
    ]
    assert record["run"]["model"] == "acclimate:digits"
    assert f"{record['error']['value']:.1f} %" in out


def test_clean_images_are_a_row_that_the_mean_leaves_out(capfd):
    def rows_and_mean(*words: str) -> tuple[list[list[str]], str]:
        assert evaluate("--images", "clean.npz", *words) == 0
        lines = capfd.readouterr().out.splitlines()
        rows = [line.split() for line in lines if line.startswith(("clean ", "fog "))]
        return rows, next(line for line in lines if line.startswith("mean error"))

    shifts = ["--shift", "cifar/fog:1", "--shift", "cifar/fog:5"]
    (fog,), mean = rows_and_mean(*shifts)
    (clean,), _ = rows_and_mean()
    rows = [[clean[0], "-", "-", *clean[1:]], fog]
    assert rows_and_mean("--shift", "clean", *shifts) == (rows, mean)


def test_the_store_is_one_that_results_reads(capfd):
    assert evaluate("--images", "clean.npz", "--shift", "cifar/fog", "--out", "scores") == 0
    error = capfd.readouterr().out.partition("mean error ")[2].partition(" %")[0]
    assert main(["results", "scores/results.db", "--json"]) == 0
    (cell,) = json.loads(capfd.readouterr().out)["cells"]
    assert f"{cell['value']:.1f}" == error
    for size in ("16", "32"):
        evaluate("--images", "clean.npz", "--recipe", "bn", "--batch-size", size, "--out", "scores")
    capfd.readouterr()
    assert main(["results", "scores/results.db", "--where", "recipe=bn", "--json"]) == 0
    cells = json.loads(capfd.readouterr().out)["cells"]
    assert {cell["images"] for cell in cells} == {80}
    assert len(cells) == 2


def test_folders_and_arrays_are_both_images(capfd):
    from PIL import Image

    for index, (image, label) in enumerate(zip(IMAGES[:80], LABELS[:80], strict=True)):
        folder = Path("photos", str(label))
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{index}.png")
    Path("photos/0/broken.png").write_text("no image")
    errors = []
    for images in ("clean.npz", "photos"):
        assert evaluate("--images", images, "--json") == 0
        errors.append(json.loads(capfd.readouterr().out)["error"])
    assert errors[0] == errors[1]
    assert evaluate("--images", "photos") == 0
    assert "note: 1 of 81 images cannot be read and are left out" in capfd.readouterr().out


def test_another_size_is_another_evaluation(capfd):
    words = ["--images", "clean.npz", "--out", "scores"]
    assert evaluate(*words) == 0
    assert evaluate(*words, "--size", "8", "--mean", "0.3", "--std", "0.5") == 2
    err = capfd.readouterr().err
    assert "of other preprocessing: expected 8×8, mean (0.3,), std (0.37,), got 8×8" in err


def test_adapted_with_forgetting(capfd):
    words = ["--images", "clean.npz", "--shift", "cifar/fog:5", "--recipe", "ent"]
    assert evaluate(*words, "--set", "epochs=1", "--clean", "clean.npz") == 0
    out = capfd.readouterr().out
    for said in ("mean error unadapted", "mean error before update", "error on the source"):
        assert said in out


def test_adapt_to_a_shift_resumes_like_any_run(capfd):
    words = ["adapt", *MODEL, "--images", "clean.npz", "--shift", "cifar/fog:5", "--json"]
    words += ["--recipe", "bn", "--out", "run", "--quiet"]
    assert main(words) in (0, 3, 4)
    first = capfd.readouterr().out
    assert main(words) in (0, 3, 4)
    assert capfd.readouterr().out == first
    assert json.loads(Path("run/summary.json").read_text())["run"]["shift"] == "cifar/fog:5"
    clean = [word for word in words if not word.startswith(("cifar", "--shift", "run", "--out"))]
    assert main(clean) in (0, 3, 4)
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
        ("--images clean.npz --shift cifar/fog --shift imagenet/fog", "shifts of one preset"),
        ("--images clean.npz --recipe none --epochs 2", "takes no options"),
        ("--images clean.npz --recipe ent --set epoch=2", "did you mean 'epochs'"),
        ("--images clean.npz --recipe ent --clean unlabelled.npz", "labelled clean images"),
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


@pytest.mark.parametrize(
    "words", ["--shift cifar/fob", "--shift fog", "--recipe entt", "--recipe ent --set a=b"]
)
def test_a_typo_shows_before_a_model_is_loaded(words, monkeypatch, capfd):
    monkeypatch.setattr("acclimate.cli.evaluate.load_model", None)
    assert evaluate("--images", "clean.npz", *words.split()) == 2
    assert "Traceback" not in capfd.readouterr().err


def test_a_data_set_without_its_root_says_what_to_get(capfd):
    assert evaluate("--dataset", "imagenet-c") == 2
    err = capfd.readouterr().err
    for said in ("needs --root", "65 GB", "zenodo", "gaussian_noise/1/n01440764"):
        assert said in err
    assert main(["adapt", *MODEL, "--dataset", "cifar10-c", "--root", "nowhere"]) == 2
    assert "one has to be chosen" in capfd.readouterr().err


def test_another_size_keeps_the_colour_scale_of_the_model(capfd):
    assert evaluate("--images", "clean.npz", "--size", "32") == 0
    out = capfd.readouterr().out
    assert "preprocessing  32×32, mean (0.3,), std (0.37,)" in out
    assert main(["adapt", *MODEL, "--images", "clean.npz", "--size", "32", "--quiet"]) in (0, 3)
    assert "32×32, mean (0.3,), std (0.37,)" in capfd.readouterr().out
    assert evaluate("--images", "clean.npz", "--size", "0") == 2
    assert "expected size (height, width) >= 1" in capfd.readouterr().err


def test_what_can_be_listed(capfd):
    assert main(["list", "datasets", "--json"]) == 0
    assert {"imagenet-c", "cifar10-c", "fmow", "folder"} <= set(json.loads(capfd.readouterr().out))
    assert main(["list", "corruptions", "f*"]) == 0
    assert [line.split() for line in capfd.readouterr().out.splitlines()] == [
        ["frost", "test"],
        ["fog", "test"],
    ]


def test_a_model_that_cannot_take_the_images_is_a_message(tmp_path, capfd):
    np.savez(tmp_path / "colour.npz", images=np.zeros((4, 9, 9, 3), np.uint8), labels=[0, 1, 2, 3])
    words = ["--model", "acclimate:digits", "--images", str(tmp_path / "colour.npz")]
    words += ["--size", "8", "--mean", *3 * ["0.5"], "--std", *3 * ["0.5"]]
    assert main(["evaluate", *words, "--quiet", "--device", "cpu"]) == 2
    err = capfd.readouterr().err
    assert "the model failed on images of shape 4 × 3 × 8 × 8" in err
    assert "expected 1 channels, as its first convolution takes them, got 3; " in err
    assert "Traceback" not in err
