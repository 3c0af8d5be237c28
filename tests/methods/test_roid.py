"""ROID, beside the same thing written out in plain PyTorch."""

from __future__ import annotations

import pytest
import torch

from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from nets import gn_net, images, snapshot
from plain import BATCHES, has_moved, our_run, sure_net
from plain_roid import LR, PlainROID

OPTIONS = {"optimizer.lr": LR}


def test_six_steps_equal_plain_pytorch() -> None:
    answers, parameters, learner = our_run("roid", OPTIONS, model=sure_net())
    plain = PlainROID()
    expected = [plain.step(batch) for batch in BATCHES]
    assert all(0 < n < 16 for n in plain.counted)
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, {n: p.detach() for n, p in plain.affine.items()})
    assert (learner.forwards, learner.backwards) == (12, 6)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("objective.consistency", 0.0),
        ("objective.temperature", 3.0),
        ("objective.clip", 0.5),
        ("regularizer", "none"),
        ("predictor", "student"),
    ],
)
def test_everything_in_it_matters(option: str, value: object) -> None:
    whole, *_ = our_run("roid", OPTIONS, model=sure_net())
    less, *_ = our_run("roid", {**OPTIONS, option: value}, model=sure_net())
    assert not torch.allclose(whole[-1], less[-1], atol=1e-5)


def test_without_a_view_a_batch_costs_one_pass() -> None:
    *_, learner = our_run("roid", {**OPTIONS, "objective.consistency": 0.0}, model=sure_net())
    assert (learner.forwards, learner.backwards) == (6, 6)


def test_images_that_are_all_alike_count_one_each() -> None:
    alike = images(1).repeat(4, 1, 1, 1)
    learner = Learner(gn_net(), get_recipe("roid"))
    learner.step(alike)
    assert learner.states["objective"].probability.sum() == pytest.approx(1)
    assert all(torch.isfinite(p).all() for p in learner.learning.values())
    assert has_moved({n: p.detach() for n, p in learner.learning.items()}, learner, by=1e-6)


def test_the_anchor_alone_leads_back_to_the_source() -> None:
    learner = Learner(sure_net(), get_recipe("roid", {**OPTIONS, "regularizer.momentum": 0.0}))
    before = snapshot(learner.model)
    for batch in BATCHES:
        learner.step(batch)
    torch.testing.assert_close(snapshot(learner.model), before, atol=1e-12, rtol=0)
