"""Whatever is typed, a command ends with an exit status of its own and words, not a traceback."""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import event, given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

from acclimate.bench import Store
from acclimate.cli import main
from acclimate.cli.parser import build_parser
from acclimate.data.digits import digits
from acclimate.models.networks.digits import load_digits_model
from digit_runs import adapt
from fuzzing import cases
from stored import result
from sweeps import write_digits

pytestmark = pytest.mark.filterwarnings("ignore")

STATUSES = (0, 1, 2, 3, 4)
NET = "from acclimate.models import load\ndef build(): return load('acclimate:digits')\n"
MODEL = ("--model", "acclimate:digits")
SWEEP = ("--models", "acclimate:digits", "--datasets", "mnist", "--root", ".", "--incomplete")
QUICK = {
    "adapt": [*MODEL, "--images", "clean.npz", "--recipe", "bn", "--quiet"],
    "compare": [*MODEL, "--images", "photos", "--recipes", "none", "--quiet"],
    "drift": [*MODEL, "--images", "photos", "--quiet"],
    "evaluate": [*MODEL, "--images", "clean.npz", "--quiet"],
    "bench": [*SWEEP, "--recipes", "none", "--store", "new.db", "--quiet"],
    "tune": [*SWEEP, "--recipes", "ent", "--lr", "1e-2", "--epochs", "1",
             "--shifts", "cifar/spatter:1", "--store", "new.db", "--quiet"],
    "results": ["results.db"],
    "report": ["results.db", "--out", "page.html"],
    "reproduce": ["--list"],
    "export": ["run", *MODEL, "--out", "net.safetensors"],
    "list": ["recipes"],
    "show": ["recipe", "ent"],
    "corrupt": ["clean.npz", "new", "--preset", "cifar", "--shift", "fog:1", "--quiet"],
    "pretrain": [*MODEL, "--dataset", "mnist", "--root", ".", "--incomplete", "--epochs", "1",
                 "--batch-size", "10", "--out", "new", "--quiet"],
}  # fmt: skip
"""A call of each command that takes a moment; a server never ends, and theory takes minutes."""

LONG = {"--compile", "--workers", "--epochs", "--address", "--slurm", "--help", "-h"}
"""Options that would start processes, compile, or learn for long."""

FILES = ("clean.npz", "photos", "photos/0.png", "results.db", "plan.yaml", "choice.json", "run",
         "w.safetensors", "labels.csv", "nowhere", "empty", "/dev/null", ".", "")  # fmt: skip
NAMES = ("acclimate:digits", "acclimate:nothing", "py:nets:build", "py:nets:nothing",
         "py:os:getcwd", "torchvision:nothing", "hf:", "paper:*", "ent", "none", "bn",
         "mnist", "cifar10", "clean",
         "cifar/fog:2", "fog", "dev", "all", "fog:9", "correlated:0", "recipe=ent", "severity=2",
         "optimizer.lr=0.01", "optimizer.lr=nan", "epochs=1", "objective=none", "teacher=epoch",
         "objective=dino", "normalization=mixture", "selector=adapters")  # fmt: skip
ODD = ("-", "--", "=", "*", "a=", "\x1b[31m", "a\r\nb", "~nobody/x", "\udcff", "é" * 300, "-1",
       "nan", "1e400", "99999999999999999999")  # fmt: skip
NUMBERS = ("-1", "0", "1", "2", "8", "0.5", "nan", "inf", "x", "")

FITTING = {
    dest: st.sampled_from(words.split())
    for dest, words in {
        "models": "acclimate:digits py:nets:build",
        "model": "acclimate:digits py:nets:build",
        "weights": "w.safetensors run/model.safetensors",
        "images": "clean.npz photos photos/0.png",
        "reference": "clean.npz photos",
        "clean": "clean.npz photos",
        "labels": "labels.csv index",
        "root": ". run",
        "dataset": "mnist cifar10",
        "datasets": "mnist folder",
        "shift": "cifar/fog:2 cifar/contrast:5@3 clean dev fog",
        "shifts": "cifar/fog:2 cifar/contrast:5@3 clean dev",
        "recipe": "bn ent none rpl lame memo dino auto tent",
        "recipes": "bn ent none tent",
        "set": "optimizer.lr=0.01 optimizer=adam epochs=1 teacher=epoch normalization=mixture",
        "lr": "0.01 1e-3 0 nan 1e9",
        "severities": "1 2,3 0 9",
        "settings": "online single correlated:0.1 mixed",
        "choice": "choice.json plan.yaml",
        "plan": "plan.yaml choice.json",
        "out": "new run page.html net.safetensors photos",
        "store": "new.db results.db clean.npz",
        "merge": "results.db clean.npz new.db",
        "export": "all.csv all.json all.parquet all.txt",
        "where": "recipe=ent seed=0 options.optimizer.lr=0.1 model=* nothing=1 severity=none",
        "rows": "recipe model seed nothing",
        "columns": "recipe severity corruption nothing",
        "value": "error online ece seconds nothing",
        "sort": "recipe 1 error nothing",
        "format": "safetensors torch-export onnx nothing markdown latex",
        "figures": "figures photos",
        "tables": "tables photos",
        "split": "test train val",
        "target": "mnist mnist-m",
        "method": "vanilla augmix nothing dann",
        "device": "cpu nowhere cuda:9",
        "workers": "1 0",
    }.items()
}
"""Words that an option takes, or nearly takes."""


def commands() -> dict[str, argparse.ArgumentParser]:
    actions = build_parser()._actions
    found = next(each for each in actions if isinstance(each, argparse._SubParsersAction))
    return {name: parser for name, parser in found.choices.items() if name in QUICK}


PARSERS = commands()


def values(action: argparse.Action) -> st.SearchStrategy[list[str]]:
    """Words for an option: fitting ones more often than others."""
    if action.nargs == 0:
        return st.just([])
    fitting = FITTING.get(action.dest)
    if fitting is not None:
        return st.one_of(fitting, st.sampled_from([*FILES, *NAMES, *ODD])).map(lambda word: [word])
    words = [*FILES, *NAMES, *ODD]
    if action.type in (int, float):
        words = [*NUMBERS]
    if action.choices is not None:
        fitting = [str(each) for each in action.choices if str(each) not in ("ray", "slurm")]
        words = [*fitting, *fitting, "nothing"]
    several = action.nargs in ("+", "*") or isinstance(action.nargs, int)
    return st.lists(st.sampled_from(words), min_size=1, max_size=3 if several else 1)


@st.composite
def calls(draw: st.DrawFn) -> list[str]:
    """A quick call with words left out or replaced, and options added."""
    name = draw(st.sampled_from([*QUICK]))
    words = [name, *QUICK[name]]
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        at = draw(st.integers(1, len(words) - 1)) if len(words) > 1 else 0
        if at and not LONG.intersection(words[at - 1 : at + 1]):
            words[at : at + 1] = draw(
                st.one_of(st.just([]), st.sampled_from([*FILES, *NAMES, *ODD]).map(lambda w: [w]))
            )
    options = [
        each
        for each in PARSERS[name]._actions
        if each.option_strings and not LONG.intersection(each.option_strings)
    ]
    for action in draw(st.lists(st.sampled_from(options), max_size=2)):
        words += [action.option_strings[0], *draw(values(action))]
    return words


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of each kind that a command reads."""
    folder = tmp_path_factory.mktemp("place")
    images, labels = digits("held-out")
    np.savez(folder / "clean.npz", images=images[:20], labels=labels[:20])
    write_digits(folder, 20)
    shutil.copy(folder / "mnist-test.npz", folder / "mnist-train.npz")
    (folder / "photos").mkdir()
    for index in range(6):
        Image.fromarray(images[index]).save(folder / "photos" / f"{index}.png")
    (folder / "labels.csv").write_text("file,class\n0.png,3\n")
    (folder / "empty").mkdir()
    (folder / "nets.py").write_text(NET)
    plan = {"model": "acclimate:digits", "dataset": "mnist", "root": ".", "recipe": "none"}
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    (folder / "choice.json").write_text('{"ent": {"optimizer.lr": 0.01}}')
    Store(folder / "results.db").add_all([result(), result(seed=1, recipe="rpl")])
    save_file(load_digits_model().model.state_dict(), folder / "w.safetensors")
    adapt(out=folder / "run", data=images[:40], recipe="bn", options={}, guard="observe")
    return folder


@cases(70)
@given(calls())
def test_a_call_ends_with_a_status_and_words(place: Path, words: list[str]) -> None:
    here = place.with_name("here")
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(place, here)
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main(words)
            except SystemExit as error:  # argparse's
                status = error.code
    err.flush()
    printed = err.buffer.getvalue().decode("utf-8", "replace")
    event(f"{words[0]} {status}")
    assert status in STATUSES
    assert "Traceback" not in printed
    if status == 2:
        assert "acclimate" in printed
