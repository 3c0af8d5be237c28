"""The embedded default: real digits, a trained net, fog; and a gain that is plain to see."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from acclimate.data import digits as digits_module
from acclimate.data.digits import PREPROCESSING, digits
from acclimate.demo import MEANING, run_demo
from acclimate.models.networks.digits import load_digits_model


def test_the_digits_are_those_of_scikit_learn():
    theirs = load_digits()
    with np.load(Path(digits_module.__file__).with_suffix(".npz")) as ours:
        assert np.array_equal(ours["images"].astype(theirs.images.dtype), theirs.images)
        assert np.array_equal(ours["labels"].astype(theirs.target.dtype), theirs.target)


@pytest.fixture(scope="module")
def demo():
    return run_demo(progress=False)


def test_training_and_held_out_digits_are_all_of_them_and_apart():
    train, held_out = digits("train")[0], digits("held-out")[0]
    assert (len(train), len(held_out)) == (797, 1000)
    assert {p.tobytes() for p in train}.isdisjoint(p.tobytes() for p in held_out)


def test_the_shift_is_fixed_and_leaves_labels_alone():
    clean, labels = digits("held-out")
    foggy, same_labels = digits("held-out", shifted=True)
    again, _ = digits("held-out", shifted=True)
    assert np.array_equal(labels, same_labels)
    assert np.array_equal(foggy, again)
    assert np.abs(foggy.astype(int) - clean).mean() > 20


@torch.no_grad()
def test_the_embedded_weights_know_clean_digits():
    images, labels = digits("held-out")
    model = load_digits_model().model
    predictions = model(PREPROCESSING.normalize(torch.from_numpy(images)[:, None])).argmax(dim=1)
    assert np.mean(predictions.numpy() != labels) < 0.05


def test_the_gain_is_plain_to_see(demo):
    assert list(demo.error) == ["none", "bn", "ent", "rpl"] == list(MEANING)
    assert demo.images == 1000
    assert demo.error["none"] > 50
    assert demo.error["bn"] < demo.error["none"] - 20
    for learnt in ("ent", "rpl"):
        assert demo.error[learnt] <= demo.error["bn"] + 1  # never worse off
    assert demo.seconds < 60
    assert demo.verdict.partition(":")[0] == "helpful"


def test_the_record_is_json(demo):
    record = json.loads(json.dumps(demo.to_dict()))
    assert set(record["error"]) == {"none", "bn", "ent", "rpl"}
    assert record["guard"]["verdict"] == "helpful"
