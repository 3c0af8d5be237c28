"""adapt() in several processes: the result of one, files written once, and no one left waiting."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

import acclimate
from acclimate import parallel
from acclimate.data import open_images
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.models import LoadedModel
from acclimate.models.networks.digits import load_digits_model
from processes import Failed, in_processes, succeed

IMAGES, LABELS = (part[:63] for part in digits("held-out", shifted=True))
FINISHED = ["history.json", "model.safetensors", "predictions.csv", "run.json", "summary.json"]

RUNS = {
    "bn": {"recipe": "bn"},
    "ent": {"recipe": "ent"},
    "best": {"recipe": "rpl-epoch", "keep": "best", "options": {"filter": "confidence"}},
    "rolled-back": {"recipe": "ent", "options": {"optimizer.lr": 20.0}},
    "running": {"recipe": "ent", "options": {"normalization": "running"}},
}


class Troubled(nn.Module):
    """The digits net in float64, so that rounding decides nothing; trouble at one forward pass."""

    def __init__(self, last: int | None = None, trouble=None) -> None:
        super().__init__()
        self.net, self.left, self.trouble = load_digits_model().model.double(), last, trouble

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.trouble(self)
        return self.net(images)


def kill(model: Troubled) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail_in_second(model: Troubled) -> None:
    if parallel.rank() == 1:
        raise ValueError("no memory left")


def nudge_in_second(model: Troubled) -> None:
    if parallel.rank() == 1:
        with torch.no_grad():
            model.net[1].weight += 1e-6


def adapt(out=None, *, recipe="ent", last=None, trouble=None, options=None, data=IMAGES, **more):
    model = LoadedModel(name="digits", model=Troubled(last, trouble), preprocessing=PREPROCESSING)
    options = {"epochs": 2, "optimizer.lr": 1e-2} | (options or {})
    settings = {"batch_size": 20, "progress": False, "checkpoint_every": 0, "labels": LABELS} | more
    return acclimate.adapt(model, data, recipe, options=options, out=out, **settings)


def contents(folder: Path) -> dict[str, object]:
    """Files by name, JSON read; what may differ between one process and several is left out."""
    found = {}
    for path in sorted(folder.iterdir()):
        found[path.name] = json.loads(path.read_text()) if path.suffix == ".json" else None
    found["summary.json"] |= {"notes": None, "sha256": None}  # of weights equal up to rounding
    return found


def assert_close(here: object, there: object, where: str = "") -> None:
    """Equal but for the last digits of floats."""
    assert type(here) is type(there), where
    if isinstance(here, dict):
        assert here.keys() == there.keys(), where
        for key in here:
            assert_close(here[key], there[key], f"{where}/{key}")
    elif isinstance(here, list):
        assert len(here) == len(there), where
        for number, pair in enumerate(zip(here, there, strict=True)):
            assert_close(*pair, f"{where}/{number}")
    elif isinstance(here, float):
        assert here == pytest.approx(there, rel=1e-5, abs=1e-6), where
    else:
        assert here == there, where


def assert_same_result(here: acclimate.AdaptationResult, there: acclimate.AdaptationResult) -> None:
    assert here.error_after == there.error_after
    assert str(here.verdict) == str(there.verdict)
    assert torch.equal(here.predictions, there.predictions)
    torch.testing.assert_close(here.confidence, there.confidence, rtol=0, atol=1e-5)
    assert_close(here.history.to_dict(), there.history.to_dict())
    theirs = there.model.state_dict()
    for name, tensor in here.model.state_dict().items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("run", RUNS)
def test_the_result_is_that_of_one_process(run: str, tmp_path: Path) -> None:
    expected = adapt(tmp_path / "one", **RUNS[run])
    found = succeed(2, lambda: adapt(tmp_path / "two", **RUNS[run]))
    for result in found:
        assert_same_result(result, expected)
        assert "each batch was shared out over 2 processes" in result.notes
    one, two = found
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, two.model.state_dict()[name])
    assert sorted(p.name for p in (tmp_path / "two").iterdir()) == FINISHED
    assert_close(contents(tmp_path / "two"), contents(tmp_path / "one"))


def test_each_process_reads_its_share_alone() -> None:
    kind = type(open_images(IMAGES, preprocessing=PREPROCESSING))
    whole_read = kind.read

    def count() -> list[int]:
        numbers: list[int] = []

        def read(self, indices):
            numbers.extend(indices.tolist())
            return whole_read(self, indices)

        kind.read = read
        adapt(recipe="bn", guard="off", labels=None)
        return numbers

    shares = succeed(2, count)
    try:
        expected = count()
    finally:
        kind.read = whole_read
    assert len(expected) == 1 + 2 * len(IMAGES)  # one to try out, statistics, predictions
    # The try-out is made by both; of everything else each image is read by one of them.
    assert sorted(shares[0][1:] + shares[1][1:]) == sorted(expected[1:])
    assert abs(len(shares[0]) - len(shares[1])) <= 2 * 4  # at most one a batch


@pytest.mark.parametrize("world", [1, 3])
def test_a_killed_run_goes_on_with_any_number_of_processes(world: int, tmp_path: Path) -> None:
    expected = adapt(**RUNS["best"])
    killed = in_processes(2, lambda: adapt(tmp_path, last=24, trouble=kill, **RUNS["best"]))
    assert killed == [None, None]
    assert (tmp_path / "checkpoint.safetensors").exists()
    for result in succeed(world, lambda: adapt(tmp_path, **RUNS["best"])):
        assert_same_result(result, expected)
    for result in succeed(2, lambda: adapt(tmp_path, last=1, trouble=kill, **RUNS["best"])):
        assert_same_result(result, expected)  # read from the folder


def test_a_folder_of_another_run_is_refused_by_all(tmp_path: Path) -> None:
    adapt(tmp_path)
    one, two = in_processes(2, lambda: adapt(tmp_path, seed=1))
    assert "holds another run, which differs in seed" in str(one)
    assert "process 0 of 2 failed: AcclimateError" in str(two)
    assert "differs in seed" in str(two)


def test_a_mistake_in_one_process_is_everyones() -> None:
    one, two = in_processes(2, lambda: adapt(batch_size=20 if parallel.is_main() else 0))
    assert "process 1 of 2 failed: AcclimateError: expected batch_size >= 1, got 0" in str(one)
    assert str(two) == "AcclimateError: expected batch_size >= 1, got 0"


def test_different_runs_are_refused() -> None:
    failures = in_processes(2, lambda: adapt(data=IMAGES if parallel.is_main() else IMAGES[::-1]))
    for failure in failures:
        assert "AcclimateError: processes in a group adapt one model to the same images" in str(
            failure
        )
        assert "in process 0 images is" in str(failure)


def test_different_runs_are_fine_alone() -> None:
    def by_itself() -> acclimate.AdaptationResult:
        seed = parallel.rank()
        with parallel.alone():
            return adapt(seed=seed)

    for seed, result in enumerate(succeed(2, by_itself)):
        assert result.error_after == adapt(seed=seed).error_after
        assert result.record.seed == seed


def test_a_process_that_fails_on_the_way_takes_the_others_with_it() -> None:
    one, two = in_processes(2, lambda: adapt(last=15, trouble=fail_in_second))
    assert str(two) == "ValueError: no memory left"
    assert isinstance(one, Failed)
    assert "AcclimateError: process 0 of 2 lost contact with the others" in str(one)


def test_processes_that_come_apart_are_found_out() -> None:
    for failure in in_processes(2, lambda: adapt(last=15, trouble=nudge_in_second)):
        assert "AcclimateError: the processes came apart by step" in str(failure)
