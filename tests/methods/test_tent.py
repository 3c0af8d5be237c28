"""TENT against a few lines of plain PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from nets import bn_net, gn_net, images, tiny_vit
from plain import BATCHES, has_moved, our_run, plain_entropy, plain_model

LR = {"optimizer.lr": 0.05}


def plain_tent(
    model: nn.Module, make: Any, batches: list[torch.Tensor]
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    net, affine = plain_model(model)
    optimizer = make(affine.values())
    answers = []
    for batch in batches:
        logits = net(batch)
        answers.append(logits.detach())
        optimizer.zero_grad()
        plain_entropy(logits).mean().backward()
        optimizer.step()
    return answers, {n: p.detach() for n, p in affine.items()}


@pytest.mark.parametrize(
    ("options", "make"),
    [
        ({}, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
        ({"optimizer": "adam"}, lambda p: torch.optim.Adam(p, lr=0.05)),
    ],
)
@pytest.mark.parametrize("net", [bn_net, gn_net])
def test_six_steps_equal_plain_pytorch(options: dict[str, Any], make: Any, net: Any) -> None:
    model = net().double()
    answers, parameters, learner = our_run("tent", {**LR, **options}, model=model)
    expected, affine = plain_tent(model, make, BATCHES)
    assert has_moved(parameters, learner)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    torch.testing.assert_close(parameters, affine, atol=1e-9, rtol=0)


def test_a_batch_costs_one_forward_and_one_backward_pass() -> None:
    *_, learner = our_run("tent", LR)
    assert (learner.forwards, learner.backwards) == (len(BATCHES), len(BATCHES))


def test_layer_norm_and_no_norm_at_all() -> None:
    assert torch.isfinite(
        Learner(tiny_vit(), get_recipe("tent")).step(images(4, size=16)).logits
    ).all()
    bare = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    with pytest.raises(AcclimateError, match="no normalisation layers"):
        Learner(bare, get_recipe("tent"))
    Learner(bare, get_recipe("tent", {"selector": "last-layer"})).step(images(4))
