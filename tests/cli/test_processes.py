"""``torchrun -m acclimate adapt``: what the plain command gives, said once."""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from acclimate.cli import main
from acclimate.cli.processes import LAUNCHED, launched_processes
from acclimate.data.digits import digits
from acclimate.errors import AcclimateError

LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture
def images(tmp_path) -> Path:
    path = tmp_path / "foggy.npz"
    images, labels = digits("held-out", shifted=True)
    np.savez(path, images=images[:203], labels=labels[:203])
    return path


def arguments(images: Path, out: Path, *more: str) -> list[str]:
    command = ["adapt", "--model", "acclimate:digits", "--images", str(images), "--out", str(out)]
    settings = ["--recipe", "rpl", "--batch-size", "50", "--set", "epochs=2", "--device", "cpu"]
    return [*command, *settings, "--json", *more]


def launch(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *LAUNCH, "-m", "acclimate", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)


def predictions(folder: Path) -> tuple[list[str], list[float]]:
    rows = list(csv.DictReader((folder / "predictions.csv").open(newline="")))
    numbers = ("confidence", "probability", "confidence_before", "probability_before")
    words = [f"{row['image']} {row['class_before']} -> {row['class']}" for row in rows]
    return words, [float(row[number]) for row in rows for number in numbers]


def test_the_command_under_torchrun_gives_what_the_plain_one_gives(
    images, tmp_path, capsys
) -> None:
    assert main(arguments(images, tmp_path / "one")) == 0
    one = json.loads(capsys.readouterr().out)
    launched = launch(*arguments(images, tmp_path / "two"))
    assert launched.returncode == 0, launched.stderr
    two = json.loads(launched.stdout)  # of one process, or this would not parse
    two["notes"].remove("each batch was shared out over 2 processes")
    for key in ("error", "guard", "notes"):
        assert two[key] == one[key]
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == files
    (one_classes, one_sure), (two_classes, two_sure) = map(
        predictions, (tmp_path / "one", tmp_path / "two")
    )
    assert len(one_classes) == 203
    assert two_classes == one_classes
    assert two_sure == pytest.approx(one_sure, abs=1e-5)

    wrong = launch(*arguments(images, tmp_path / "two", "--seed", "1"))
    assert wrong.returncode == 1  # torchrun's own
    assert "acclimate: the output folder" in wrong.stderr
    assert "which differs in seed" in wrong.stderr
    assert wrong.stdout == ""


ENDED = """
import argparse
import time
from pathlib import Path
import torch
from acclimate.cli.processes import launched_processes

def of_the_group():
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if "gloo" in name]

with launched_processes(argparse.Namespace(device="cpu")):
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()
for _ in range(100):  # one that was told to end may take a moment
    if not of_the_group():
        break
    time.sleep(0.05)
print(of_the_group())
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's list of threads")
def test_no_thread_of_a_group_outlives_it(tmp_path) -> None:
    script = tmp_path / "ended.py"
    script.write_text(ENDED)
    command = [sys.executable, *LAUNCH, str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
    assert "".join(ran.stdout.split()) == "[][]", ran.stderr  # lines of two may come mixed


@pytest.mark.parametrize(
    ("device", "words"),
    [("cuda:0", "every process needs a device of its own"), ("cuda", "at most one process per")],
)
def test_a_device_that_cannot_be_shared_is_refused(device, words, monkeypatch) -> None:
    for name in LAUNCHED:
        monkeypatch.setenv(name, "999")
    with pytest.raises(AcclimateError, match=words):
        launched_processes(argparse.Namespace(device=device)).__enter__()


def test_a_sweep_is_not_run_once_by_each_process(monkeypatch, tmp_path, capfd) -> None:
    for name in LAUNCHED:
        monkeypatch.setenv(name, "2")
    words = "bench --models acclimate:digits --datasets mnist --shifts cifar/fog:3 --recipes none"
    store = tmp_path / "sweep.db"
    images = np.zeros((4, 28, 28), np.uint8)
    np.savez(tmp_path / "mnist-test.npz", images=images, labels=np.arange(4))
    given = ["--root", str(tmp_path), "--incomplete", "--store", str(store)]
    assert main([*words.split(), *given]) == 2
    assert "without torchrun, with --engine processes" in capfd.readouterr().err
    assert not store.exists()


# Memory

ALLOCATING = """
import resource, torch
from acclimate.cli.processes import keep_freed_memory
if {keep}: assert keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    torch.ones(16_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_memory_that_was_freed_is_not_cleared_again():
    faults = [
        int(subprocess.check_output([sys.executable, "-c", ALLOCATING.format(keep=keep)]))
        for keep in (False, True)
    ]
    assert faults[1] < faults[0] / 4
