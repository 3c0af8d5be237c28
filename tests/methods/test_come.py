"""COME: the entropy of an opinion, written out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from acclimate.learner.learner import Learner
from acclimate.methods.come import opinion_entropy
from acclimate.methods.registry import get_recipe
from nets import CLASSES, bn_net, images
from plain import BATCHES, check_shared, has_moved, our_run, plain_entropy, plain_model, sure_net

OPTIONS = {"optimizer.lr": 0.05}


def by_hand(logits: Tensor) -> Tensor:
    length = logits.norm(dim=1, keepdim=True)
    evidence = (logits / length * length.detach()).exp()
    strength = evidence.sum(dim=1, keepdim=True) + CLASSES
    shares = torch.cat([evidence / strength, CLASSES / strength], dim=1) + 1e-7
    return -(shares * shares.log()).sum(dim=1)


def test_six_steps_equal_plain_pytorch() -> None:
    answers, parameters, learner = our_run("come", OPTIONS, model=sure_net())
    net, affine = plain_model(sure_net())
    optimizer = torch.optim.SGD(affine.values(), lr=0.05, momentum=0.9)
    expected = []
    for batch in BATCHES:
        logits = net(batch)
        expected.append(logits.detach())
        optimizer.zero_grad()
        by_hand(logits).mean().backward()
        optimizer.step()
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, {n: p.detach() for n, p in affine.items()})
    assert (learner.forwards, learner.backwards) == (6, 6)
    tent, *_ = our_run("tent", OPTIONS, model=sure_net())
    assert not torch.allclose(tent[-1], answers[-1], atol=1e-4)


def test_longer_logits_are_no_way_down() -> None:
    logits = (3 * torch.randn(7, 5, generator=torch.Generator().manual_seed(0))).double()
    logits.requires_grad_()
    opinion_entropy(logits).sum().backward()
    assert logits.grad is not None
    along = (logits.grad * logits.detach()).sum(dim=1)
    assert float(along.abs().max()) < 1e-9
    assert float(logits.grad.norm(dim=1).min()) > 1e-3


def test_logits_without_length_or_bound_have_finite_entropy_and_gradient() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0], [900.0, -900.0, 0.0]], requires_grad=True)
    entropies = opinion_entropy(logits)
    entropies.sum().backward()
    assert torch.isfinite(entropies).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_in_sar_the_opinions_entropy_is_what_counts() -> None:
    learner = Learner(sure_net(), get_recipe("come-sar", {"filter.margin": 0.7}))
    logits = learner.forward(BATCHES[0], learning=False).logits.detach()
    part, bound = learner.recipe.filter, 0.7 * math.log(CLASSES)
    opinion, softmax = by_hand(logits) < bound, plain_entropy(logits) < bound
    assert torch.equal(part.reliable(logits), opinion)
    assert 0 < int(opinion.sum()) < int(softmax.sum())
    before = learner.forwards
    for batch in BATCHES:
        learner.step(batch)
    assert (learner.forwards - before, learner.backwards) == (12, 12)


def test_several_processes_step_as_one() -> None:
    check_shared("come", OPTIONS, sure_net())


def test_half_as_many_classes_leave_half_as_much_undecided() -> None:
    for classes in (2, 4, 8):
        logits = Learner(bn_net(classes=classes), get_recipe("come")).step(images(4)).logits
        shares = torch.cat([logits, torch.full((4, 1), math.log(classes))], dim=1).softmax(dim=1)
        undecided = classes / (classes + logits.exp().sum(dim=1))
        torch.testing.assert_close(shares[:, -1], undecided)
