"""Kill it at any moment, run the same again: the same weights, bit for bit."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import acclimate
from acclimate import files
from acclimate.adaptation.folder import CHECKPOINT
from acclimate.checkpoint import read_tensors, tensors_writer
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.lock import LOCK
from acclimate.models import LoadedModel
from acclimate.models.networks.digits import load_digits_model
from acclimate.parts import NoRegularizer

IMAGES, LABELS = (part[:100] for part in digits("held-out", shifted=True))
BATCHES = 5  # in a pass over 100 images; an epoch of `ent` is as many forward passes
FINISHED = ["history.json", "model.safetensors", "predictions.csv", "run.json", "summary.json"]
SMALL_HEAD = {
    "objective.hidden": 16, "objective.bottleneck": 8, "objective.prototypes": 32,
    "objective.local_crops": 1,
}  # fmt: skip

RUNS = {
    "ent": {"recipe": "ent"},
    "rpl-epoch": {"recipe": "rpl-epoch"},
    "adam": {"recipe": "ent", "options": {"optimizer": "adam"}},
    "moving-average": {"recipe": "soft", "options": {"teacher": "moving-average"}},
    "running": {"recipe": "ent", "options": {"normalization": "running"}},
    "best": {"recipe": "ent", "keep": "best"},
    "rolled-back": {"recipe": "ent", "options": {"optimizer.lr": 20.0}},
    "dino": {"recipe": "dino", "options": SMALL_HEAD},
    "bn": {"recipe": "bn"},
    "filtered": {"recipe": "rpl", "options": {"filter": "confidence"}},
}


class Mortal(nn.Module):
    """The digits net; its process is killed (SIGKILL) in the forward pass number ``last``."""

    def __init__(self, last: int | None = None) -> None:
        super().__init__()
        self.net, self.left = load_digits_model().model, last

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.net(images)


def adapt(out: Path | None, *, recipe="ent", last=None, options=None, data=IMAGES, **more):
    model = LoadedModel(name="mortal", model=Mortal(last), preprocessing=PREPROCESSING)
    options = {"epochs": 2, "optimizer.lr": 1e-2} | (options or {})
    settings = {"batch_size": 20, "progress": False, "checkpoint_every": 0, "labels": LABELS} | more
    settings |= {"speed": "exact"}  # to find out what is faster takes forward passes
    return acclimate.adapt(model, data, recipe, options=options, out=out, **settings)


def dies(out: Path, last: int, **run) -> bool:
    """Run in a process of its own; whether it was killed before it was done."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            adapt(out, last=last, **run)
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def contents(folder: Path) -> dict[str, bytes]:
    """All but the lock, which a killed process leaves and the next one takes over."""
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return {name: content for name, content in files.items() if name != LOCK}


def check_same(folder: Path, expected: dict[str, bytes]) -> None:
    assert list(contents(folder)) == FINISHED
    for name in FINISHED:
        assert contents(folder)[name] == expected[name], name


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    made: dict[str, dict[str, bytes]] = {}

    def files(name: str) -> dict[str, bytes]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            adapt(folder, **RUNS[name])
            made[name] = contents(folder)
        return made[name]

    return files


@pytest.mark.parametrize("name", RUNS)
def test_killed_again_and_again_it_ends_with_the_same_files(name, uninterrupted, tmp_path):
    deaths, last = 0, 2
    while dies(tmp_path, last, **RUNS[name]):
        deaths += 1
        last += 3  # so that even a pass that begins anew each time comes to its end
        assert deaths < 60
    assert deaths >= 3
    check_same(tmp_path, uninterrupted(name))


# For `ent`: one image to try the model out, three views and the source pass, the pass before
# learning and three views, the first epoch, the pass after it, the second epoch, the pass after it,
# three views, the final predictions.
@pytest.mark.parametrize(
    ("moment", "last"),
    [
        ("trying out", 0),
        ("views of the unadapted model", 1 + 2),
        ("source pass", 1 + 3 * BATCHES + 1),
        ("start pass", 1 + 4 * BATCHES + 2),
        ("views at the start", 1 + 5 * BATCHES + 2),
        ("first batch", 1 + 8 * BATCHES),
        ("mid epoch", 1 + 8 * BATCHES + 3),
        ("end of an epoch", 1 + 9 * BATCHES),
        ("between epochs", 1 + 9 * BATCHES + 3),
        ("second epoch", 1 + 10 * BATCHES + 2),
        ("after the last epoch", 1 + 11 * BATCHES + 1),
        ("views of the adapted model", 1 + 12 * BATCHES + 1),
        ("final pass", 1 + 15 * BATCHES + 4),
    ],
)
def test_killed_once_at_any_moment(moment, last, uninterrupted, tmp_path):
    assert dies(tmp_path, last, **RUNS["ent"])
    assert "summary.json" not in contents(tmp_path)
    assert not dies(tmp_path, 1000, **RUNS["ent"])
    check_same(tmp_path, uninterrupted("ent"))


def test_the_moments_above_are_all_there_are(tmp_path):
    assert not dies(tmp_path, 1 + 16 * BATCHES, **RUNS["ent"])


@pytest.mark.parametrize("name", ["run.json", "checkpoint.safetensors", "summary.json"])
def test_killed_while_writing(name, uninterrupted, tmp_path, monkeypatch):
    def die_before_rename(temporary, path) -> None:
        if Path(path).name == name:
            os.kill(os.getpid(), signal.SIGKILL)
        os.rename(temporary, path)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", die_before_rename)
        assert dies(tmp_path, 1000, **RUNS["ent"])
    assert f".{name}.partial" in contents(tmp_path)
    adapt(tmp_path, **RUNS["ent"])
    check_same(tmp_path, uninterrupted("ent"))


def test_it_resumes_rather_than_starts_again(tmp_path):
    last = 1 + 10 * BATCHES + 2  # in the second epoch
    assert dies(tmp_path, last)
    # What is left: the second half of the epoch, the pass after it, three views and the final one.
    assert not dies(tmp_path, 1 + (BATCHES - 2) + 5 * BATCHES)


def test_a_finished_run_is_only_read(tmp_path):
    first = adapt(tmp_path)
    before = contents(tmp_path)
    assert not dies(tmp_path, 1)  # one image to try the model out, and nothing more
    again = adapt(tmp_path)
    assert contents(tmp_path) == before
    assert torch.equal(again.predictions, first.predictions)
    assert again.history == first.history
    assert (again.verdict, again.notes) == (first.verdict, first.notes)
    assert all(
        torch.equal(again.model.state_dict()[k], v) for k, v in first.model.state_dict().items()
    )


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"seed": 1}, "seed (seed: there 0, here 1)"),
        ({"recipe": "rpl"}, 'recipe (recipe.name: there "ent", here "rpl")'),
        ({"options": {"optimizer.lr": 0.5}}, "recipe (recipe.optimizer.lr: there 0.01, here 0.5)"),
        ({"batch_size": 10}, "batch_size (batch_size: there 20, here 10)"),
        ({"guard": "stop"}, 'guard (guard.action: there "rollback", here "stop")'),
        ({"keep": "best"}, 'keep (keep: there "last", here "best")'),
        ({"data": IMAGES[::-1].copy()}, "images (images: there"),
    ],
)
def test_another_run_in_the_same_folder_is_refused(other, named, finished, tmp_path):
    if finished:
        adapt(tmp_path)
    else:
        assert dies(tmp_path, 1 + 2 * BATCHES + 3)
    before = contents(tmp_path)
    with pytest.raises(AcclimateError) as caught:
        adapt(tmp_path, **other)
    assert f"holds another run, which differs in {named}" in str(caught.value)
    assert contents(tmp_path) == before


def test_other_weights_are_another_run(tmp_path):
    adapt(tmp_path)
    before = contents(tmp_path)
    changed = Mortal()
    with torch.no_grad():
        changed.net[0].weight[0, 0, 0, 0] += 1e-3
    model = LoadedModel(name="mortal", model=changed, preprocessing=PREPROCESSING)
    options = {"epochs": 2, "optimizer.lr": 1e-2}
    with pytest.raises(AcclimateError, match="differs in weights"):
        acclimate.adapt(
            model, IMAGES, "ent", options=options, batch_size=20, out=tmp_path, progress=False
        )
    assert contents(tmp_path) == before


def test_labels_are_no_part_of_a_runs_identity(tmp_path):
    first = adapt(tmp_path, labels=None)
    assert adapt(tmp_path, labels=LABELS).verdict == first.verdict


def test_a_folder_with_somebody_elses_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("all I have")
    with pytest.raises(
        AcclimateError, match=r"not empty and holds no acclimate run \(thesis.tex\)"
    ):
        adapt(tmp_path)
    assert contents(tmp_path) == {"thesis.tex": b"all I have"}


def test_an_empty_folder_and_one_to_be_made_are_used(tmp_path):
    adapt(tmp_path / "a" / "b")
    (tmp_path / "empty").mkdir()
    adapt(tmp_path / "empty")
    assert list(contents(tmp_path / "a" / "b")) == list(contents(tmp_path / "empty")) == FINISHED


@pytest.mark.parametrize("damage", ["a flipped bit", "cut off"])
def test_of_a_damaged_checkpoint_the_one_before_it_is_taken(damage, uninterrupted, tmp_path):
    assert dies(tmp_path, 1 + 10 * BATCHES + 2, **RUNS["ent"])
    path = tmp_path / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content if damage == "a flipped bit" else content[:-100])
    with pytest.warns(AcclimateWarning, match=r"resumes from .*checkpoint\.previous\.safetensors"):
        adapt(tmp_path, **RUNS["ent"])
    check_same(tmp_path, uninterrupted("ent"))


def test_damaged_files_of_a_run_are_named(tmp_path):
    assert dies(tmp_path, 1 + 10 * BATCHES + 2)
    for each in tmp_path.glob("checkpoint*"):
        each.write_bytes(b"rubbish")
    with pytest.raises(AcclimateError, match=r"could not read .*checkpoint\.previous\.safetensors"):
        adapt(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(AcclimateError, match=r"expected JSON in .*run\.json"):
        adapt(tmp_path)


def test_a_run_begun_with_other_versions_resumes_with_a_warning(tmp_path):
    assert dies(tmp_path, 1 + 2 * BATCHES + 3)
    identity = json.loads((tmp_path / "run.json").read_text())
    identity["versions"]["torch"] = "1.0"
    (tmp_path / "run.json").write_text(json.dumps(identity))
    with pytest.warns(AcclimateWarning, match="began with other versions"):
        adapt(tmp_path)
    assert list(contents(tmp_path)) == FINISHED


def test_a_part_that_could_not_be_found_again_is_refused_before_the_work(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Local(NoRegularizer):
        dtype: object = None

    adapt(None, options={"regularizer": Local()})  # nothing is stored, nothing to find
    with pytest.raises(AcclimateError, match="defined inside a function"):
        adapt(tmp_path / "run", options={"regularizer": Local()})
    with pytest.raises(AcclimateError, match="cannot be stored"):
        adapt(tmp_path / "run", options={"regularizer": Local(dtype=torch.float32)})
    assert not (tmp_path / "run").exists()


@pytest.fixture
def checkpoint(tmp_path):
    last = 20
    while not (tmp_path / CHECKPOINT).exists():
        assert dies(tmp_path, last)
        last += 1
    return tmp_path / CHECKPOINT


@pytest.mark.parametrize("damage", [{"history": {}}, {"acceleration": None}, {"history": []}])
def test_a_checkpoint_with_a_record_that_does_not_fit_is_refused(damage, checkpoint, tmp_path):
    tensors, record = read_tensors(checkpoint)
    files.write_files({checkpoint: tensors_writer(tensors, record | damage)})
    with pytest.raises(AcclimateError, match=r"damaged.*remove checkpoint\.safetensors to start"):
        adapt(tmp_path)
    checkpoint.unlink()
    adapt(tmp_path)


def test_a_checkpoint_of_0_1_which_has_no_hash_is_taken(checkpoint, tmp_path):
    tensors, record = read_tensors(checkpoint)
    save_file(tensors, checkpoint, metadata={"record": json.dumps(record)})
    adapt(tmp_path)


def test_a_flipped_bit_in_the_only_checkpoint_is_noticed(checkpoint, tmp_path):
    content = bytearray(checkpoint.read_bytes())
    content[-20] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(AcclimateError, match=r"expected contents with the sha256 .*damaged"):
        adapt(tmp_path)
