"""SHOT-IM: sure and diverse answers of everything below a frozen classifier."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.errors import AcclimateError
from acclimate.guard.guard import Guard
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.methods.shot import negative_diversity
from acclimate.parts.selectors import Backbone
from acclimate.stream import Stream
from nets import bn_net, gn_net, images, same_tensors, snapshot, tiny_vit
from processes import succeed

BATCHES = [images(16, seed=seed).double() for seed in range(4)]
LR = {"optimizer.lr": 0.05}


def by_hand(net: nn.Module) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Batch statistics, the two entropies written out, torch's own SGD."""
    net = copy.deepcopy(net)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
            module.running_mean = module.running_var = None
    body = list(net.parameters())[:-2]
    optimizer = torch.optim.SGD(body, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)
    answers = []
    for x in BATCHES:
        logits = net(x)
        p = logits.softmax(dim=1)
        mean = p.mean(dim=0)
        loss = -(p * p.log()).sum(dim=1).mean() + (mean * mean.log()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        answers.append(logits.detach())
    return answers, {name: p.detach() for name, p in net.named_parameters()}


def test_four_steps_equal_plain_pytorch() -> None:
    net = bn_net().double()
    learner = Learner(bn_net().double(), get_recipe("shot-im", LR))
    answers = [learner.step(x).logits for x in BATCHES]
    expected, parameters = by_hand(net)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    ours = {name: p.detach() for name, p in learner.model.named_parameters()}
    torch.testing.assert_close(ours, parameters, atol=1e-9, rtol=0)
    moved = {name for name, p in net.named_parameters() if not torch.equal(p, ours[name])}
    assert moved == set(ours) - {"9.weight", "9.bias"}
    assert (learner.forwards, learner.backwards) == (4, 4)


def test_the_value_is_the_two_entropies_in_nats() -> None:
    sure_and_even = 50 * torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(
        negative_diversity(sure_and_even).mean(), torch.tensor(-math.log(4), dtype=torch.float64)
    )
    learner = Learner(bn_net().double(), get_recipe("shot-im", {"objective.diversity": 0}))
    assert learner.step(BATCHES[0]).loss > 0
    learner = Learner(bn_net().double(), get_recipe("shot-im", {"objective.diversity": 1}))
    assert learner.step(BATCHES[0]).loss < 0  # mutual information is never negative


def test_predictions_that_are_confident_beyond_rounding_have_a_finite_loss() -> None:
    logits = torch.tensor([[2000.0, 0.0, -2000.0]] * 3, requires_grad=True)
    negative_diversity(logits).mean().backward()
    assert torch.isfinite(logits.grad).all()


def test_one_image_alone_teaches_nothing() -> None:
    learner = Learner(gn_net().double(), get_recipe("shot-im", {**LR, "optimizer.weight_decay": 0}))
    learner.step(BATCHES[0][:1])
    learnt = {name: p.detach() for name, p in learner.learning.items()}
    torch.testing.assert_close(learnt, learner.source)


def shares() -> list[Tensor]:
    learner = Learner(bn_net().double(), get_recipe("shot-im", LR))
    for x in BATCHES:
        learner.step(acclimate.parallel.share(x))
    return [p.detach() for p in learner.learning.values()]


def test_two_processes_learn_what_one_learns() -> None:
    for learnt in succeed(2, shares):
        torch.testing.assert_close(learnt, shares(), atol=1e-9, rtol=0)


@pytest.mark.parametrize(("net", "size"), [(bn_net, 8), (gn_net, 8), (tiny_vit, 16)])
def test_it_adapts_and_streams_on_any_architecture(net: Any, size: int) -> None:
    data = images(64, size=size)
    result = acclimate.adapt(
        net(), data, "shot-im", options={"epochs": 2}, batch_size=16, progress=False, device="cpu"
    )
    assert torch.equal(result.model(data).argmax(dim=1), result.predictions)
    first, second = Stream(net(), "shot-im"), Stream(net(seed=1), "shot-im")
    first(data[:8])
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(data[8:16]), second(data[8:16]))


def test_the_guard_rolls_it_back() -> None:
    stream = Stream(bn_net(), "shot-im", options={"optimizer.lr": 50}, guard=Guard(check_every=2))
    with pytest.warns(UserWarning, match="went back to step 0"):
        _ = [stream(x.float()) for x in BATCHES[:2]]
    assert same_tensors(snapshot(stream.model), snapshot(bn_net()))


def test_the_backbone_is_all_but_the_classifier() -> None:
    names = [name for name, _ in bn_net().named_parameters()]
    assert Backbone().names(bn_net()) == [n for n in names if not n.startswith("9.")]
    assert not {"head.weight", "head.bias"} & set(Backbone().names(tiny_vit()))
    with pytest.raises(AcclimateError, match="no parameters below its classifier"):
        Backbone().check(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))
