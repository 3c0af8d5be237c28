"""``acclimate bench``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from acclimate.bench import Store
from acclimate.cli import main
from acclimate.data.digits import digits
from torch_free import run_without_torch

pytestmark = pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")

BASE = ["--models", "acclimate:digits", "--datasets", "mnist", "--store", "sweep.db"]
ROOT = ["--root", ".", "--incomplete", "--device", "cpu", "--quiet"]
PLAN = ["--shifts", "cifar/fog:2", "clean", "--recipes", "none", "bn"]
# Enough jobs to be stopped between them.
LONG = ["--shifts", "cifar/fog:2", "--recipes", "ent", "--set", "epochs=4", "--seeds"]
LONG += list(map(str, range(8)))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images, labels = digits("held-out")
    large = np.pad(np.kron(images[:160], np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
    np.savez("mnist-test.npz", images=large, labels=labels[:160])
    return tmp_path


def bench(*words: str) -> int:
    return main(["bench", *BASE, *ROOT, *words])


def test_run_show_and_run_again(capfd):
    assert bench(*PLAN, "--dry-run") == 0
    out = capfd.readouterr().out
    assert "4 jobs, 0 of them done, 4 to run" in out
    assert not Path("sweep.db").exists()
    assert bench(*PLAN) == 0
    out = capfd.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.startswith("acclimate:digits")]
    assert {row[1] for row in rows} == {"none", "bn"}
    assert "4 run, 0 done before, 0 failed" in out
    assert bench(*PLAN, "--json") == 0
    record = json.loads(capfd.readouterr().out)
    assert (record["done"], record["skipped"], record["failed"]) == (0, 4, [])
    errors = {job.recipe for job in (r.job for r in Store("sweep.db").results())}
    assert {cell["row"]["recipe"] for cell in record["table"]["cells"]} == errors
    assert bench(*PLAN, "--dry-run", "--json", "--seeds", "0", "1") == 0
    record = json.loads(capfd.readouterr().out)
    assert (record["jobs"], record["done"]) == (6, 4)
    assert {job["seed"] for job in record["first"]} == {1}


def test_a_store_that_a_full_disk_left_empty_is_made():
    Path("sweep.db").touch()
    assert bench(*PLAN) == 0
    assert len(Store("sweep.db")) == 4


def test_images_of_your_own_are_a_data_set(capfd):
    from PIL import Image

    images, labels = digits("held-out")
    for index, (image, label) in enumerate(zip(images[:60], labels[:60], strict=True)):
        folder = Path("photos", str(label))
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{index}.png")
    np.savez("photos.npz", images=images[:60], labels=labels[:60])
    words = ["bench", "--models", "acclimate:digits", "--datasets", "folder", *PLAN, *ROOT[2:]]
    for root in ("photos", "photos.npz"):
        assert main([*words, "--root", root, "--store", f"{root}.db"]) == 0
    capfd.readouterr()
    results = [list(Store(f"{root}.db").results()) for root in ("photos", "photos.npz")]
    errors = [{each.key: each.error for each in store} for store in results]
    assert errors[0] == errors[1]
    assert {each.record.labelled for each in results[0]} == {60}
    Path("empty").mkdir()
    assert main([*words, "--root", "empty", "--store", "other.db"]) == 2
    assert "expected image files" in capfd.readouterr().err


def test_scored_at_the_end_alone(capfd):
    asked = ["--shifts", "cifar/fog:2", "--recipes", "ent", "--set", "optimizer.lr=0.01"]
    assert bench(*asked, "--set", "epochs=3", "--score", "end") == 0
    (result,) = Store("sweep.db").results()
    first, second, last = result.record.errors.after_epoch
    assert (first, second) == (None, None)
    assert last is not None
    assert result.error is not None
    capfd.readouterr()
    words = ["--epochs", "3", "--selection", "oracle", "--out", "choice.json"]
    assert main(["tune", *BASE, *ROOT, *asked, *words]) == 1
    assert "scored at its end alone" in "".join(capfd.readouterr())


def test_one_epoch_scored_at_its_end_is_all_there_is(capfd):
    asked = ["--shifts", "cifar/fog:2", "--recipes", "ent", "--set", "optimizer.lr=0.01"]
    assert bench(*asked, "--set", "epochs=1", "--score", "end") == 0
    words = ["--epochs", "1", "--selection", "oracle", "--out", "choice.json"]
    assert main(["tune", *BASE, *ROOT, *asked, *words]) == 0
    assert "0 run, 1 done before" in capfd.readouterr().out


def test_a_plan_from_a_file_and_options_that_win(capfd):
    Path("plan.yaml").write_text(
        "model: acclimate:digits\ndataset: mnist\nroot: .\nshift: cifar/fog:2\n"
        "recipe: [none, ent]\nset: {optimizer.lr: [1e-3, 1e-4], ent: {epochs: 1}}\nseed: [0, 1]\n"
    )
    words = ["bench", "--plan", "plan.yaml", "--store", "sweep.db", "--dry-run", "--json"]
    assert main(words) == 0
    assert json.loads(capfd.readouterr().out)["jobs"] == 5
    assert main([*words, "--seeds", "0", "--set", "ent:epochs=1,2,3"]) == 0
    record = json.loads(capfd.readouterr().out)
    assert record["jobs"] == 7
    assert record["first"][1]["options"] == {"epochs": 1, "optimizer.lr": 0.001}
    assert main([*words, "--recipes", "none"]) == 0  # what the file says of ent is not needed
    assert json.loads(capfd.readouterr().out)["jobs"] == 1


def test_a_plan_file_narrowed_to_one_of_its_data_sets(capfd):
    Path("plan.yaml").write_text(
        "model: acclimate:digits\ndatasets: [mnist, cifar10]\nroot: .\n"
        "shift: {mnist: [cifar/fog:2], cifar10: [cifar/snow:1]}\nrecipe: none\n"
    )
    words = ["bench", "--plan", "plan.yaml", "--datasets", "mnist", "--store", "sweep.db"]
    assert main([*words, "--dry-run", "--json"]) == 0
    assert [job["shift"] for job in json.loads(capfd.readouterr().out)["first"]] == ["cifar/fog:2"]


def test_one_failed_job_does_not_stop_the_others(capfd):
    words = ["--recipes", "none", "ent", "--set", "ent:batch_size=1"]
    assert bench(*words, "--images-per-shift", "20") == 1
    out = capfd.readouterr().out
    assert "1 run, 0 done before, 1 failed" in out
    assert "failed: acclimate:digits mnist clean ent: one image has no batch statistics" in out
    assert len(Store("sweep.db").done_keys()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--recipes entt", "did you mean 'ent'"),
        ("--shifts cifar/fgo", "fgo"),
        ("--set epochs", "expected part.option=value"),
        ("--set rpl:epochs=2", "which is not in the plan"),
        ("--set optimizer.lrr=2 --recipes ent", "lrr"),
        ("--root elsewhere", "for all"),
        ("--root mnist=elsewhere", "nothing is there"),
        (
            "--root usps=elsewhere",
            "expected --root NAME=PATH with one of mnist, got usps=elsewhere",
        ),
        ("--weights nowhere.pt", "cannot read the weights file"),
        ("--engine inline --workers 2", "expected one worker for --engine inline"),
        ("--workers 0", "expected workers >= 1"),
        ("--address auto", "--address is for --engine ray"),
        ("--engine slurm --slurm timeout_min", "expected --slurm NAME=VALUE"),
        (
            "--engine slurm --cpus-per-job 0.5",
            "expected a whole number --cpus-per-job >= 1, got 0.5",
        ),
        ("--engine slurm --gpus-per-job -1", "expected a whole number --gpus-per-job >= 0, got -1"),
        ("--engine slurm --slurm cluster=local --slurm timeout_min=abc", "submitit refuses this"),
        ("--plan nowhere.yaml", "cannot read"),
        ("--images 0", "expected images >= 1"),
    ],
)
def test_mistakes(words, said, capfd):
    assert bench(*words.split()) == 2
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert said in err
    assert not Path("sweep.db").exists()


def test_a_folder_without_the_data_is_said_before_anything_runs(capfd, tmp_path):
    (tmp_path / "empty").mkdir()
    assert main(["bench", *BASE, "--root", "empty", "--recipes", "none"]) == 2
    assert "in empty" in (err := capfd.readouterr().err)
    assert err.strip().endswith("check --root mnist=DIR")
    assert main(["bench", *BASE, "--root", ".", "--recipes", "none"]) == 2
    assert "expected 10,000 images" in capfd.readouterr().err
    assert not Path("sweep.db").exists()
    assert bench("--recipes", "none") == 0
    Path("mnist-test.npz").unlink()
    assert bench("--recipes", "none") == 0  # all of it is done, and needs no images


def test_a_warning_about_a_model_that_knows_no_class_of_the_data(capfd):
    words = ["bench", "--models", "acclimate:wrn-26-2-bn-cifar10", *BASE[2:], *ROOT]
    small = ["--recipes", "none", "bn", "--images-per-shift", "4"]
    assert main([*words, *small]) == 0
    assert capfd.readouterr().out.count("note: no class of mnist (0, ...) is known to the") == 1


def test_what_is_needed(capfd):
    assert main(["bench", "--store", "sweep.db"]) == 2
    assert "expected --models and --datasets" in capfd.readouterr().err
    assert main(["bench", *BASE]) == 2
    assert "mnist needs a root" in capfd.readouterr().err


def test_help_needs_no_torch():
    assert "--settings" in run_without_torch(["bench", "--help"]).stdout


def started(*words: str) -> subprocess.Popen[str]:
    """A sweep as a process group of its own, that has its first result."""
    command = [sys.executable, "-m", "acclimate", "bench", *BASE, *ROOT, *LONG, *words]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_receive_interrupts,
    )
    for _ in range(1200):
        if Path("sweep.db").exists() and len(Store("sweep.db")):
            return process
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.kill()
    raise AssertionError("no result in a minute")


def _receive_interrupts() -> None:
    """Tests that run in the background of a shell ignore them, and so would all they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def in_group(group: int) -> list[str]:
    """The processes of a group that are not gone."""
    alive = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            alive.append(stat.parent.name)
    return alive


def left_in_group(group: int) -> list[str]:
    """The same, once they had a moment to go."""
    for _ in range(200):
        if not in_group(group):
            break
        time.sleep(0.05)
    return in_group(group)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_a_killed_sweep_resumes_and_leaves_no_workers(capfd):
    process = started("--workers", "2")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert left_in_group(process.pid) == []
    before = {result.key: result.created for result in Store("sweep.db").results()}
    assert 1 <= len(before) < 8
    assert bench(*LONG, "--json") == 0
    record = json.loads(capfd.readouterr().out)
    assert (record["skipped"], record["done"]) == (len(before), 8 - len(before))
    after = {result.key: result.created for result in Store("sweep.db").results()}
    assert len(after) == 8
    assert before.items() <= after.items()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_an_interrupt_prints_how_to_resume():
    many = list(map(str, range(60)))  # more than get done before the signal arrives
    process = started("--engine", "processes", "--workers", "1", "--seeds", *many)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to all of them
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "from where the same command resumes" in err
    assert "Traceback" not in err
    assert left_in_group(process.pid) == []
    assert 1 <= len(Store("sweep.db").done_keys()) < len(many)


def test_short_forms_of_set(capfd):
    words = ["--recipes", "none", "ent", "--dry-run", "--json"]
    assert bench(*words, "--lr", "1e-3,1e-4", "--epochs", "2") == 0
    record = json.loads(capfd.readouterr().out)
    assert [job.get("options") for job in record["first"]] == [
        None,
        {"epochs": 2, "optimizer.lr": 0.001},
        {"epochs": 2, "optimizer.lr": 0.0001},
    ]
    assert bench(*words, "--epochs", "2", "--set", "ent:epochs=3") == 0
    (_, job) = json.loads(capfd.readouterr().out)["first"]
    assert job["options"]["epochs"] == 3
    assert bench(*words, "--lr", "1e-3", "--set", "optimizer.lr=1") == 2
    assert "--lr 1e-3 and --set optimizer.lr=1 set the same option" in capfd.readouterr().err
