"""Mistakes: exit status 2, one line that says what to do, and no traceback."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from acclimate.cli import main
from adapt_inputs import LABELS, call, go_to, write_folder, write_npz


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    go_to(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model acclimate:digits", "expected both --model and --images; add --images PATH"),
        ("--images blurred.npz", "add --model SPEC"),
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
        ("{ok} --recipe py:json:loads", "called without arguments, failed: TypeError: loads()"),
        ("--model acclimate:digits --images=", "expected --images PATH, got an empty name"),
        ("{ok} --set optimizer.rl=1", "did you mean 'lr'?"),
        ("{ok} --set epochs=many", "epochs: expected int, got 'many'"),
        ("{ok} --set epochs", "expected part.option=value (optimizer.lr=1e-3), got 'epochs'"),
        ("{ok} --recipe rpl --set objective.q=2", "expected q"),
        ("{ok} --lr fast", "optimizer.lr: expected float | None, got 'fast'"),
        ("{ok} --epochs 2 --set epochs=3", "--epochs 2 and --set epochs=3 set the same option"),
        ("{ok} --set teacher=epok", "did you mean 'epoch'?"),
        ("{ok} --recipe bn --batch-size 1", "one image has no batch statistics"),
        ("{ok} --batch-size 0", "expected batch_size >= 1, got 0"),
        ("{ok} --device warp9", "cannot use the device 'warp9'"),
        ("{ok} --seed 99999999999999999999999", "expected a seed"),
        ("{ok} --weights nowhere.safetensors", "nowhere.safetensors"),
        ("{ok} --out nets.py", "cannot write to 'nets.py': File exists; choose another folder"),
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


def test_a_model_without_a_record_of_its_preprocessing(tmp_path, capsys):
    write_folder(tmp_path / "photos", folders=None, count=8)
    call = ["adapt", "--model", "py:nets:recordless", "--images", "photos", "--quiet"]
    assert main(call) == 2
    assert "--size 224" in capsys.readouterr().err
    told = ["--size", "8", "--resize", "9", "--mean", "0.3", "--std", "0.37"]
    assert main([*call, *told]) == 4  # eight images tell nothing
    line = "shorter side to 9 px (bilinear), centre 8×8, mean (0.3,), std (0.37,)"
    assert line in capsys.readouterr().out
    assert main([*call, "--mean", "0.3"]) == 2
    assert "--mean needs --size" in capsys.readouterr().err


EXITS = """
import sys
from torch import nn

def build():
    sys.exit(5)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(1)

    def forward(self, images):
        sys.exit(5)
"""


@pytest.mark.parametrize(
    ("module", "model", "said"),
    [
        (
            EXITS,
            "py:exits:build",
            "py:exits:build, called without arguments, failed: SystemExit: 5",
        ),
        (EXITS, "py:exits:Net", "code of the model or recipe ended the program (sys.exit(5))"),
        ("import sys\nsys.exit(5)", "py:exits:build", "could not be imported: SystemExit: 5"),
    ],
)
def test_code_that_exits_is_a_mistake(module, model, said, tmp_path, capfd, monkeypatch):
    monkeypatch.delitem(sys.modules, "exits", raising=False)
    (tmp_path / "exits.py").write_text(module)
    np.save(tmp_path / "float.npy", np.zeros((4, 1, 8, 8), np.float32))
    assert main(["adapt", "--model", model, "--images", "float.npy", "--recipe", "ent"]) == 2
    err = capfd.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_too_little_memory_ends_in_words(tmp_path, capfd, monkeypatch):
    write_npz(tmp_path / "blurred.npz", count=20)

    def too_large(*_):
        raise MemoryError("Unable to allocate 62.5 GiB")

    monkeypatch.setattr("acclimate.data.opening.load_arrays", too_large)
    assert main(["adapt", "--model", "acclimate:digits", "--images", "blurred.npz"]) == 2
    err = capfd.readouterr().err
    assert "acclimate: out of memory: Unable to allocate 62.5 GiB; expected images" in err
    assert "Traceback" not in err
