"""What the tests of the methods share: a model written out in plain PyTorch, and their duties."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from acclimate import parallel
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from nets import bn_net, images
from processes import succeed

BATCHES = [images(16, seed=seed).double() for seed in range(6)]


def plain_model(model: nn.Module) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """Batch statistics without running ones; gradients for the norms' scale and shift only."""
    model = copy.deepcopy(model).eval().requires_grad_(False)
    affine: dict[str, nn.Parameter] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
            affine |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
            module.running_mean = module.running_var = None
    for parameter in affine.values():
        parameter.requires_grad_()
    return model, affine


def sure_net() -> nn.Sequential:
    """A net as sure of itself as trained ones are: some entropies lie below a margin, not all."""
    net = bn_net()
    with torch.no_grad():
        net[-1].weight.mul_(16)
    return net.double()


def plain_entropy(logits: Tensor) -> Tensor:
    p = logits.softmax(dim=1)
    return -(p * p.log()).sum(dim=1)


def our_run(
    recipe: str,
    options: Mapping[str, Any],
    *,
    model: nn.Module | None = None,
    batches: list[Tensor] | None = None,
    seed: int = 0,
) -> tuple[list[Tensor], dict[str, Tensor], Learner]:
    """Answers before each update, the parameters after the last, and the learner."""
    net = bn_net().double() if model is None else copy.deepcopy(model)
    learner = Learner(net, get_recipe(recipe, options), seed=seed)
    learner.start_epoch()
    answers = [learner.step(batch).logits for batch in batches or BATCHES]
    return answers, {n: p.detach() for n, p in learner.learning.items()}, learner


def has_moved(parameters: Mapping[str, Tensor], learner: Learner, *, by: float = 1e-3) -> bool:
    """Whether equality of parameters proves anything."""
    return max(float((p - learner.source[n]).abs().max()) for n, p in parameters.items()) > by


def check_shared(recipe: str, options: Mapping[str, Any], model: nn.Module) -> None:
    """Two processes with a part of each batch take the steps that one takes with all of it."""

    def work() -> dict[str, Tensor]:
        batches = [parallel.share(batch) for batch in BATCHES]
        _, parameters, _ = our_run(recipe, options, model=model, batches=batches)
        return parameters

    _, expected, learner = our_run(recipe, options, model=model)
    assert has_moved(expected, learner)
    for found in succeed(2, work):
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=0)


def plain(model: nn.Module) -> nn.Module:
    """In evaluation mode but for batch norm, which reads each batch and writes no buffer."""
    model.eval().requires_grad_(True)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
            module.running_mean = module.running_var = None
    return model


def copied(learner: Learner) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.state_tensors().items()}
