"""Resuming from a checkpoint: which call may, what a refusal reports, and a damaged file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from acclimate.checkpoint import previous_of, read_tensors, tensors_writer
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.files import write_files
from acclimate.pretraining import (
    AugMix,
    Dann,
    Dino,
    Plan,
    SelfEnsembling,
    Trained,
    UdaSs,
    Vanilla,
    pretrain,
)
from acclimate.pretraining.training import CHECKPOINT, differences
from coloured import examples, net, same

PLAN = Plan(epochs=2, batch_size=32, lr=0.05)


def train(model: nn.Module, folder: Path, method=None, plan: Plan = PLAN, **more: Any) -> Trained:
    return pretrain(
        model, examples(), method or Vanilla(), plan, out=folder, progress=False, **more
    )


@pytest.fixture
def folder(tmp_path):
    train(net(), tmp_path, identity={"data": "abc"})
    return tmp_path


def rewrite(folder: Path, **changes: Any) -> None:
    """Another record in the checkpoint; a value of None takes the entry away."""
    tensors, record = read_tensors(folder / CHECKPOINT)
    changed = {k: v for k, v in {**record, **changes}.items() if v is not None}
    write_files({folder / CHECKPOINT: tensors_writer(tensors, changed)})


@pytest.mark.parametrize(
    ("method", "optimizer"),
    [
        (AugMix(), "sgd"),
        (AugMix(), "adam"),
        (Dann(), "sgd"),
        (UdaSs(), "sgd"),
        (SelfEnsembling(augmentation="tfa"), "sgd"),
        (Dino(local_crops=1, hidden=16, bottleneck=8, prototypes=32), "adam"),
    ],
)
def test_stopped_and_resumed_it_ends_the_same(method, optimizer, tmp_path, monkeypatch):
    plan = Plan(epochs=4, batch_size=32, lr=0.01, optimizer=optimizer)
    target = 255 - examples().images
    whole = net()  # which seeds what the heads are drawn from, too
    first = pretrain(whole, examples(), method, plan, target=target, progress=False)
    steps, real = [], type(method).loss

    def failing(self, forward, heads, batch):
        steps.append(1)
        if len(steps) == 8:  # in the third epoch
            raise KeyboardInterrupt
        return real(self, forward, heads, batch)

    monkeypatch.setattr(type(method), "loss", failing)
    broken = net()
    with pytest.raises(KeyboardInterrupt):
        train(broken, tmp_path, method, plan, target=target)
    monkeypatch.setattr(type(method), "loss", real)
    resumed = net(seed=5)
    again = train(resumed, tmp_path, method, plan, target=target)
    assert same(resumed, whole)
    assert again.losses == first.losses
    assert again.seconds > 0
    for name, tensors in first.files.items():
        assert all(torch.equal(again.files[name][key], value) for key, value in tensors.items())
    # The heads are no part of the model that is returned.
    assert set(whole.state_dict()) == set(net().state_dict())
    assert not any(module._forward_pre_hooks for m in (whole, broken) for module in m.modules())


@pytest.mark.parametrize(
    ("method", "plan", "data", "message"),
    [
        (Vanilla(), Plan(epochs=3, batch_size=32, lr=0.05), "abc", r"\(epochs: 2, now 3\)"),
        (Vanilla(flip=False), PLAN, "abc", r"\(flip: True, now False\)"),
        (AugMix(), PLAN, "abc", r"\(method: Vanilla, now AugMix\)"),
        (Vanilla(), PLAN, "xyz", r"\(data: abc, now xyz\)"),
        (Vanilla(margin=0), Plan(epochs=2, batch_size=8, lr=0.05), "abc", "batch_size.*margin"),
    ],
)
def test_a_refusal_names_what_differs_and_nothing_else(folder, method, plan, data, message):
    with pytest.raises(AcclimateError, match=f"another training.*{message}") as refused:
        train(net(), folder, method, plan, identity={"data": data})
    assert "weight_decay" not in str(refused.value)
    assert "choose another folder" in str(refused.value)


def test_another_architecture(folder):
    with pytest.raises(AcclimateError, match="another architecture"):
        train(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), folder, identity={"data": "abc"})


def test_options_that_came_later_do_not_keep_an_older_training_from_going_on(folder):
    _, record = read_tensors(folder / CHECKPOINT)
    plan = {k: v for k, v in record["plan"].items() if k not in ("clip", "optimizer")}
    rewrite(folder, plan=plan, method="Vanilla(margin=4)", revision=None)
    before, after = net(), net(seed=3)
    pretrain(before, examples(), Vanilla(), PLAN, progress=False)
    train(after, folder, identity={"data": "abc"})
    assert same(before, after)
    clipped = Plan(epochs=2, batch_size=32, lr=0.05, clip=1.0)
    with pytest.raises(AcclimateError, match=r"\(clip: None, now 1.0\)"):
        train(net(), folder, plan=clipped, identity={"data": "abc"})


@pytest.mark.parametrize("method", [Dann(), SelfEnsembling()])
def test_a_method_that_computes_differently_now_is_not_resumed(method):
    record = {"plan": {}, "method": repr(method), "revision": method.revision}
    assert differences(record, Plan(), method, {}) == []
    del record["revision"]
    (message,) = differences(record, Plan(), method, {})
    assert "revision: 1, now 2" in message


def test_words_and_numbers_are_read_back_as_they_were():
    method = UdaSs(tasks=("flip",), margin=2)
    record = {"plan": {}, "method": repr(method)}
    assert differences(record, Plan(), method, {}) == []
    assert differences(record, Plan(), UdaSs(margin=2), {}) == [
        "tasks: ('flip',), now ('rotation', 'flip', 'location')"
    ]


def test_a_cut_off_checkpoint(folder):
    path = folder / CHECKPOINT
    previous_of(path).unlink()
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(AcclimateError, match=f"{CHECKPOINT}.*delete that file to start anew"):
        train(net(), folder, identity={"data": "abc"})


def test_a_damaged_checkpoint_leaves_the_one_before_it(folder, tmp_path):
    whole = train(net(), tmp_path, identity={"data": "abc"})
    path = folder / CHECKPOINT
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.warns(AcclimateWarning, match=r"sha256.*resumes from the checkpoint before it"):
        again = train(net(), folder, identity={"data": "abc"})
    assert again.losses == whole.losses


@pytest.mark.parametrize(
    "changes", [{"epoch": None}, {"method": "nothing ("}, {"plan": 7}, {"method": "'Vanilla'"}]
)
def test_a_file_that_is_no_checkpoint_of_this_kind(folder, changes):
    rewrite(folder, **changes)
    with pytest.raises(AcclimateError, match=r"damaged or no checkpoint.*delete that file"):
        train(net(), folder, identity={"data": "abc"})
