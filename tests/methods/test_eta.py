"""ETA against a few lines of plain PyTorch, and what its filter does at the edges."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.parts.filters import ReliableDiverse
from nets import CLASSES, bn_net, images, tiny_vit
from plain import (
    BATCHES,
    check_shared,
    has_moved,
    our_run,
    plain_entropy,
    plain_model,
    sure_net,
)

OPTIONS = {"optimizer.lr": 0.01, "filter.max_similarity": 0.995}


def plain_eta(
    batches: list[Tensor], *, margin: float, similarity: float
) -> tuple[list[Tensor], dict[str, Tensor], list[int]]:
    net, affine = plain_model(sure_net())
    optimizer = torch.optim.SGD(affine.values(), lr=0.01, momentum=0.9)
    answers, counted, mean = [], [], None
    for batch in batches:
        logits = net(batch)
        answers.append(logits.detach())
        entropies, p = plain_entropy(logits), logits.detach().softmax(dim=1)
        chosen = []
        for i in range(len(batch)):
            reliable = entropies[i] < margin
            new = mean is None or p[i] @ mean / (p[i].norm() * mean.norm()) < similarity
            if reliable and new:
                chosen.append(i)
        counted.append(len(chosen))
        if not chosen:
            continue
        fresh = p[chosen].mean(dim=0)
        mean = fresh if mean is None else 0.9 * mean + 0.1 * fresh
        weights = 1 / torch.exp(entropies[chosen].detach() - margin)
        optimizer.zero_grad()
        (weights * entropies[chosen]).mean().backward()
        optimizer.step()
    return answers, {n: p.detach() for n, p in affine.items()}, counted


def test_six_steps_equal_plain_pytorch() -> None:
    answers, parameters, learner = our_run("eta", OPTIONS, model=sure_net())
    expected, affine, counted = plain_eta(BATCHES, margin=0.4 * math.log(CLASSES), similarity=0.995)
    assert all(0 < n < 16 for n in counted[1:]), "the filter must have something to decide"
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, affine, atol=1e-9, rtol=0)


def test_a_batch_costs_one_forward_and_one_backward_pass() -> None:
    *_, learner = our_run("eta", OPTIONS, model=sure_net())
    assert (learner.forwards, learner.backwards) == (len(BATCHES), len(BATCHES))


def test_without_a_reliable_image_there_is_no_backward_pass_and_no_move() -> None:
    _, parameters, learner = our_run("eta", {**OPTIONS, "filter.margin": 0.0}, model=sure_net())
    assert (learner.forwards, learner.backwards) == (len(BATCHES), 0)
    assert not has_moved(parameters, learner, by=0)
    assert learner.states["filter"].probability.numel() == 0


def test_without_a_new_image_there_is_none_either_and_the_average_stays() -> None:
    learner = Learner(sure_net(), get_recipe("eta", {**OPTIONS, "filter.max_similarity": 0.0}))
    learner.step(BATCHES[0])
    mean = learner.states["filter"].probability.clone()
    learner.step(BATCHES[1])
    assert learner.backwards == 1
    assert torch.equal(learner.states["filter"].probability, mean)


def test_the_margin_and_the_similarity_scale_with_the_classes() -> None:
    chosen = get_recipe("eta").filter
    assert isinstance(chosen, ReliableDiverse)
    assert chosen.threshold(torch.zeros(1, 1000)) == pytest.approx(0.4 * math.log(1000))
    assert chosen.threshold(torch.zeros(1, 10)) == pytest.approx(0.4 * math.log(10))
    assert chosen.similarity(1000) == pytest.approx(0.05)
    assert chosen.similarity(10) == pytest.approx(0.4)
    assert 0.05 < chosen.similarity(200) < 0.4
    assert ReliableDiverse(max_similarity=0.3).similarity(7) == 0.3


def test_what_is_not_a_number_reaches_the_guard() -> None:
    learner = Learner(bn_net(), get_recipe("eta"))
    loss = learner.step(images(8) * float("nan")).loss
    assert loss is not None
    assert not torch.isfinite(loss)


def test_several_processes_step_as_one() -> None:
    check_shared("eta", OPTIONS, sure_net())


def test_layer_norm_and_two_classes() -> None:
    for classes in (2, 5):
        learner = Learner(tiny_vit(num_classes=classes), get_recipe("eta", {"filter.margin": 1.1}))
        learner.step(images(4, size=16))
        assert learner.backwards == 1
