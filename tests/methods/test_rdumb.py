"""RDumb: ETA in pieces, each of which starts from the source."""

from __future__ import annotations

import torch

from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from nets import bn_net, images
from plain import BATCHES, has_moved, our_run, plain_entropy, plain_model, sure_net

OPTIONS = {"optimizer.lr": 0.05, "filter.margin": 1.1, "filter.max_similarity": 1.0}


def test_every_third_step_begins_with_the_source_again() -> None:
    answers, parameters, learner = our_run("rdumb", {**OPTIONS, "regularizer.every": 3})
    expected = []
    for start in (0, 3):
        net, affine = plain_model(bn_net().double())
        optimizer = torch.optim.SGD(affine.values(), lr=0.05, momentum=0.9)
        for batch in BATCHES[start : start + 3]:
            logits = net(batch)
            expected.append(logits.detach())
            entropies = plain_entropy(logits)
            weights = (1.1 * torch.tensor(5.0).log() - entropies.detach()).exp()
            optimizer.zero_grad()
            (weights * entropies).mean().backward()
            optimizer.step()
    torch.testing.assert_close(answers, expected, atol=1e-6, rtol=0)
    assert not has_moved(parameters, learner, by=0), "six steps end in a reset"


def test_between_resets_it_is_eta() -> None:
    narrow = {**OPTIONS, "filter.max_similarity": 0.96, "filter.margin": 0.4}
    ours, parameters, learner = our_run("rdumb", narrow, model=sure_net())
    eta, expected, _ = our_run("eta", narrow, model=sure_net())
    assert has_moved(parameters, learner)
    torch.testing.assert_close(ours, eta, atol=0, rtol=0)
    torch.testing.assert_close(parameters, expected, atol=0, rtol=0)


def test_a_reset_leaves_nothing_behind() -> None:
    options = {**OPTIONS, "regularizer.every": 2, "normalization": "running"}
    learner = Learner(bn_net(), get_recipe("rdumb", options))
    fresh = {k: v.clone() for k, v in learner.state_tensors().items() if k != "learner/steps"}
    learner.step(images(8))
    assert learner.states["filter"].probability.numel()
    learner.step(images(8, seed=1))
    after = learner.state_tensors()
    assert all(torch.equal(after[k], v) for k, v in fresh.items())
    assert not [k for k in after if k not in fresh and k != "learner/steps"]
    again = Learner(bn_net(), get_recipe("rdumb", options)).step(images(8, seed=2))
    assert torch.equal(learner.step(images(8, seed=2)).logits, again.logits)


def test_a_teacher_goes_back_too() -> None:
    options = {"regularizer": "periodic-reset", "regularizer.every": 2, "optimizer.lr": 0.5}
    learner = Learner(bn_net(), get_recipe("hard", {**options, "teacher": "moving-average"}))
    learner.step(images(8))
    assert has_moved(learner.states["teacher"].tensors, learner, by=0)
    learner.step(images(8, seed=1))
    assert not has_moved(learner.states["teacher"].tensors, learner, by=0)


def test_a_batch_costs_one_forward_and_one_backward_pass() -> None:
    *_, learner = our_run("rdumb", {**OPTIONS, "regularizer.every": 2})
    assert (learner.forwards, learner.backwards) == (len(BATCHES), len(BATCHES))
