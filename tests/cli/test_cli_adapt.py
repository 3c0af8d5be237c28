"""``acclimate adapt``: what it prints, where, and its exit status."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from acclimate.cli import main
from acclimate.data.corruptions import corrupt
from acclimate.demo.digits import digits
from acclimate.demo.model import load_digits_model

CLEAN, LABELS = digits("held-out")
BLURRED = corrupt(CLEAN, "gaussian_blur", 4, preset="cifar", seed=0)
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

NETS = """
import time, torch
from torch import nn
from acclimate.data import ClassList
from acclimate.demo.digits import PREPROCESSING
from acclimate.demo.model import build_network, load_digits_model
from acclimate.models import LoadedModel

def named():
    print("hello from the user's own code")
    words = "zero one two three four five six seven eight nine".split()
    model = load_digits_model().model
    names = ClassList(tuple(words))
    return LoadedModel(name="", model=model, preprocessing=PREPROCESSING, classes=names)

def unnamed():
    return LoadedModel(name="", model=load_digits_model().model, preprocessing=PREPROCESSING)

def blank():
    torch.manual_seed(0)
    return LoadedModel(name="", model=build_network(), preprocessing=PREPROCESSING)

def recordless():
    return load_digits_model().model

def bare():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = load_digits_model().model
    def forward(self, x):
        time.sleep(0.02)
        return self.net(x)

def slow():
    return LoadedModel(name="", model=Slow(), preprocessing=PREPROCESSING)
"""


@pytest.fixture(autouse=True)
def nets(tmp_path, monkeypatch):
    """A folder of the user's own, with his models in a module."""
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    return tmp_path


def write_folder(root: Path, images=BLURRED, labels=LABELS, *, folders=WORDS, count=120) -> Path:
    for index in range(count):
        folder = root / folders[labels[index]] if folders else root
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[index]).save(folder / f"{index:04}.png")
    return root


def write_npz(path: Path, images=BLURRED, labels=None, count=200) -> str:
    known = {} if labels is None else {"labels": labels[:count]}
    np.savez(path, images=images[:count], **known)
    return str(path)


def call(*words: str) -> int:
    return main(["adapt", *map(str, words)])


def call_json(capfd, *words: str) -> tuple[int, dict]:
    status = call(*words, "--json")
    out = capfd.readouterr().out
    assert out.endswith("}\n")
    assert out.count("\n") == 1
    return status, json.loads(out)


# The embedded default.


def test_the_embedded_default_prints_the_same_for_people_and_programs(capfd):
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "acclimate", "adapt", "--json"], capture_output=True, text=True
    )
    assert time.monotonic() - began < 60
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    error = json.loads(done.stdout)["error"]
    assert list(error) == ["none", "bn", "ent", "rpl"]
    assert error["bn"] < error["none"] - 20
    assert call("--quiet") == 0
    out, err = capfd.readouterr()
    rows = [line.split() for line in out.splitlines()[4:8]]
    assert [row[:2] for row in rows] == [[name, f"{value:.1f}"] for name, value in error.items()]
    assert "guard: " in out
    assert err == ""


@pytest.mark.parametrize(
    "option",
    ["--out=x", "--recipe=ent", "--batch-size=0", "--guard=off", "--keep=best", "--set=a=b"],
)
def test_the_embedded_default_takes_no_options_of_other_runs(option, capfd):
    assert call(option) == 2
    assert f"{option.partition('=')[0]} needs --model and --images" in capfd.readouterr().err


# Other runs.


@pytest.mark.parametrize(
    ("model", "folders"),
    [
        pytest.param("py:nets:named", WORDS, id="names"),
        pytest.param("py:nets:named", tuple("0123456789"), id="indices"),
        pytest.param("py:nets:named", tuple(f"{i:03}" for i in range(10)), id="padded-indices"),
        pytest.param("py:nets:unnamed", tuple("0123456789"), id="indices-without-names"),
        pytest.param("acclimate:digits", tuple("0123456789"), id="digits"),
    ],
)
def test_folders_that_name_classes_give_errors_before_and_after(model, folders, tmp_path, capfd):
    images = write_folder(tmp_path / "photos", folders=folders)
    status, got = call_json(capfd, "--model", model, "--images", images, "--recipe", "bn")
    assert status == 0
    assert got["guard"]["verdict"] == "helpful"
    assert set(got["error"]) == {"before", "after"}
    assert got["error"]["after"] < got["error"]["before"] - 20
    assert (got["model"], got["images"]) == (model, 120)


def test_a_subset_of_the_classes_is_matched_too(tmp_path, capfd):
    chosen = np.isin(LABELS, (1, 4, 7))
    images = write_folder(tmp_path / "photos", CLEAN[chosen], LABELS[chosen], count=60)
    _, got = call_json(capfd, "--model", "py:nets:named", "--images", images, "--recipe", "none")
    assert got["error"]["before"] == got["error"]["after"] < 10


def test_without_labels_there_is_a_verdict_and_no_error(tmp_path, capfd):
    images = write_folder(tmp_path / "photos", folders=None)
    _, got = call_json(capfd, "--model", "acclimate:digits", "--images", images, "--recipe", "bn")
    assert got["guard"]["verdict"] == "helpful"
    assert "error" not in got


def test_a_summary_for_people_and_the_files(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz", labels=LABELS)
    out = tmp_path / "out"
    options = ["--recipe", "ent", "--set", "epochs=2", "--set", "optimizer.lr=0.01"]
    assert call("--model", "acclimate:digits", "--images", images, "--out", out, *options) == 0
    printed = capfd.readouterr().out
    for said in (
        "acclimate:digits\n  architecture   Sequential",
        "preprocessing  8×8, mean (0.3,), std (0.37,)",
        "epoch  loss",
        "error before update %  error after epoch %",
        "recipe ent, 200 images",
        "(200 labelled images)",
        "guard: helpful",
        f"written to {out}",
    ):
        assert said in printed
    assert sorted(p.name for p in out.iterdir()) == [
        "history.json", "model.safetensors", "predictions.csv", "run.json", "summary.json",
    ]  # fmt: skip
    rows = list(csv.DictReader((out / "predictions.csv").open()))
    assert len(rows) == 200
    assert json.loads((out / "summary.json").read_text())["recipe"]["epochs"] == 2


def test_the_state_that_was_kept_is_named(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz")
    words = ["--model", "acclimate:digits", "--images", images, "--recipe", "ent", "--keep", "best"]
    assert call(*words, "--set", "epochs=2") == 0
    out = capfd.readouterr().out
    said = re.search(r"^kept: the state (after epoch (\d)|before learning)$", out, re.MULTILINE)
    assert said is not None
    _, summary = call_json(capfd, *words, "--set", "epochs=2")
    assert summary["kept_epoch"] == int(said[2] or 0)


def test_running_it_again_prints_the_result_again(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz", labels=LABELS)
    words = ["--model", "acclimate:digits", "--images", images, "--out", tmp_path / "out"]
    words += ["--recipe", "bn", "--quiet"]
    assert call(*words) == 0
    first = capfd.readouterr().out
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()}
    assert call(*words) == 0
    assert capfd.readouterr().out == first
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").iterdir()} == before
    assert call(*words, "--seed", "7") == 2
    assert "holds another run, which differs in seed" in capfd.readouterr().err


def test_weights_from_a_file(tmp_path, capfd):
    save_file(load_digits_model().model.state_dict(), tmp_path / "w.safetensors")
    images = write_npz(tmp_path / "clean.npz", CLEAN, LABELS)
    words = ["--model", "py:nets:blank", "--images", images, "--recipe", "none"]
    _, blank = call_json(capfd, *words)
    _, filled = call_json(capfd, *words, "--weights", tmp_path / "w.safetensors")
    assert filled["error"]["after"] < 5 < 50 < blank["error"]["after"]


def test_what_the_users_code_prints_stays_out_of_the_json(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz")
    assert call("--model", "py:nets:named", "--images", images, "--recipe", "bn", "--json") == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["images"] == 200
    assert "hello from the user's own code" in err


def test_refused_is_exit_status_3_with_the_source_model(tmp_path, capfd):
    two = np.isin(LABELS, (3, 5))
    images = write_npz(tmp_path / "two.npz", CLEAN[two], LABELS[two])
    status, got = call_json(capfd, "--model", "acclimate:digits", "--images", images)
    assert status == 3
    assert got["guard"]["verdict"] == "refused"
    assert got["error"]["after"] == got["error"]["before"]
    words = ["--guard", "observe", "--set", "epochs=1"]
    status, got = call_json(capfd, "--model", "acclimate:digits", "--images", images, *words)
    assert (status, got["guard"]["verdict"]) == (0, "harmful")
    assert got["error"]["after"] > got["error"]["before"]


def test_progress_goes_to_stderr_unless_quiet(tmp_path, capfd):
    images = write_npz(tmp_path / "blurred.npz", count=60)
    words = ["--model", "py:nets:slow", "--images", images, "--recipe", "ent"]
    words += ["--batch-size", "2", "--set", "epochs=1", "--guard", "off", "--json"]
    assert call(*words) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["images"] == 60
    assert "epoch 1/1" in err
    assert call(*words, "--quiet") == 0
    assert capfd.readouterr().err == ""


def test_killed_and_run_again_it_ends_with_the_same_files(tmp_path):
    images = write_npz(tmp_path / "blurred.npz", count=100)

    def words(out: str) -> list[str]:
        start = [sys.executable, "-m", "acclimate", "adapt", "--model", "py:nets:slow"]
        options = ["--recipe", "ent", "--batch-size", "10", "--set", "epochs=3", "--quiet"]
        return [*start, "--images", images, "--out", out, *options]

    victim = subprocess.Popen(words("killed"), cwd=tmp_path, stdout=subprocess.DEVNULL)
    while not (tmp_path / "killed" / "run.json").exists():
        assert victim.poll() is None
        time.sleep(0.01)
    time.sleep(0.5)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "summary.json").exists()
    for out in ("killed", "whole"):
        done = subprocess.run(words(out), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "predictions.csv", "history.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


# Files of all sorts.


def test_odd_image_files_are_converted_and_broken_ones_counted(tmp_path, capfd):
    photos = write_folder(tmp_path / "photos", folders=None, count=30)
    picture = Image.fromarray(BLURRED[0])
    Image.fromarray(BLURRED[1].astype(np.uint16) * 257).save(photos / "sixteen-bit.png")
    picture.convert("CMYK").save(photos / "cmyk.jpg")
    picture.convert("P").save(photos / "palette.png")
    picture.convert("RGBA").save(photos / "alpha.png")
    picture.convert("LA").save(photos / "grey-alpha.png")
    picture.save(photos / "animated.gif", save_all=True, append_images=[picture, picture])
    (photos / "cut.png").write_bytes((photos / "0000.png").read_bytes()[:50])
    (photos / "empty.jpg").write_bytes(b"")
    (photos / "text.png").write_text("no picture")
    words = ["--model", "acclimate:digits", "--images", photos, "--recipe", "bn", "--json"]
    assert call(*words) == 0
    out, err = capfd.readouterr()
    got = json.loads(out)
    assert (got["images"], got["skipped"]) == (36, 3)
    assert "warning: 3 of 39 images cannot be read and are left out" in err
    assert "cut.png" in err
    assert "Traceback" not in err


# Mistakes: exit status 2, one line that says what to do, and no traceback.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model acclimate:digits", "expected both --model and --images, got no --images"),
        ("--images blurred.npz", "got no --model"),
        ("--model acclimate:digits --images nowhere", "no such folder or file: nowhere"),
        ("--model acclimate:digits --images empty", "found no files at all"),
        ("--model acclimate:digits --images nets.py", "expected a folder of images, a .npz"),
        ("--model acclimate:digits --images nan.npz", "NaN or infinite pixels"),
        ("--model acclimate:digits --images labels.npz", "no classes of a model with 10 classes"),
        ("--model py:nets:unnamed --images labels.npz", "below the model's 10 classes, got 10"),
        ("--model acclimate:digits --images colour.npy", "failed on images of shape 1 × 3 × 8 × 8"),
        ("--model digits --images blurred.npz", "expected a model with a prefix"),
        ("--model aclimate:digits --images blurred.npz", "did you mean 'acclimate'?"),
        ("--model acclimate:digit --images blurred.npz", "did you mean 'digits'?"),
        ("--model acclimate:wrn-40-2 --images blurred.npz", "a network without weights"),
        ("--model py:nets:nobody --images blurred.npz", "unknown function in nets 'nobody'"),
        ("--model py:nowhere:f --images blurred.npz", "no module 'nowhere'"),
        ("{ok} --recipe rlp", "unknown recipe 'rlp'; did you mean 'rpl'?"),
        ("{ok} --set optimizer.rl=1", "did you mean 'lr'?"),
        ("{ok} --set epochs=many", "epochs: expected int, got 'many'"),
        ("{ok} --set epochs", "expected part.option=value (optimizer.lr=1e-3), got 'epochs'"),
        ("{ok} --set objective.q=2", "expected q"),
        ("{ok} --set teacher=epok", "did you mean 'epoch'?"),
        ("{ok} --recipe bn --batch-size 1", "one image has no batch statistics"),
        ("{ok} --batch-size 0", "expected batch_size >= 1, got 0"),
        ("{ok} --device warp9", "cannot use the device 'warp9'"),
        ("{ok} --seed 99999999999999999999999", "expected a seed"),
        ("{ok} --weights nowhere.safetensors", "nowhere.safetensors"),
        ("{ok} --out nets.py", "cannot use nets.py as output folder"),
        ("{ok} --out .", "is not empty and holds no acclimate run"),
        ("--model py:nets:bare --images blurred.npz --recipe none", "preprocessing"),
        ("--model py:nets:bare --images float.npy", "no normalisation layers"),
    ],
)  # fmt: skip
def test_mistakes(words, said, tmp_path, capfd):
    (tmp_path / "empty").mkdir()
    write_npz(tmp_path / "blurred.npz", count=20)
    write_npz(tmp_path / "labels.npz", labels=LABELS + 1)
    np.savez(tmp_path / "nan.npz", images=np.full((4, 1, 8, 8), np.nan, np.float32))
    np.save(tmp_path / "colour.npy", np.zeros((4, 3, 8, 8), np.float32))
    np.save(tmp_path / "float.npy", np.zeros((4, 1, 8, 8), np.float32))
    before = sorted(p.name for p in tmp_path.iterdir())
    ok = "--model acclimate:digits --images blurred.npz"
    assert call(*words.format(ok=ok).split(), "--quiet") == 2
    err = capfd.readouterr().err
    last = err.splitlines()[-1]
    assert last.startswith("acclimate: ")
    assert said in last
    assert "Traceback" not in err
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == before


@pytest.mark.parametrize(
    "words", [["--bogus"], ["--guard", "maybe"], ["--keep", "first"], ["--seed", "x"], ["stray"]]
)
def test_what_the_parser_does_not_know_is_status_2_too(words, capfd):
    with pytest.raises(SystemExit) as caught:
        call(*words)
    assert caught.value.code == 2
    assert "usage: acclimate" in capfd.readouterr().err


def test_a_model_without_a_record_is_told_how_to_see(tmp_path, capsys):
    write_folder(tmp_path / "pictures", folders=None, count=8)
    call = ["adapt", "--model", "py:nets:recordless", "--images", "pictures", "--quiet"]
    assert main(call) == 2
    assert "--size 224" in capsys.readouterr().err
    told = ["--size", "8", "--resize", "9", "--mean", "0.3", "--std", "0.37"]
    assert main([*call, *told]) == 0
    line = "shorter side to 9 px (bilinear), centre 8×8, mean (0.3,), std (0.37,)"
    assert line in capsys.readouterr().out
    assert main([*call, "--mean", "0.3"]) == 2
    assert "--mean needs --size" in capsys.readouterr().err


def test_a_long_table_of_epochs_is_shortened():
    from acclimate.cli.adapt import EPOCHS_SHOWN, _shortened
    from acclimate.history import EpochRecord
    from acclimate.metrics import Tally

    scores = Tally().scores()
    epochs = [EpochRecord(n, scores, None, 0.0) for n in range(1, 31)]
    rows = _shortened(epochs)
    assert [row[0] for row in rows] == [
        "1",
        "2",
        "3",
        "4",
        "5",
        "...",
        "26",
        "27",
        "28",
        "29",
        "30",
    ]
    assert len(_shortened(epochs[:EPOCHS_SHOWN])) == EPOCHS_SHOWN
