"""What the tests of the methods share: a model written out in plain PyTorch, and their duties."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate import parallel
from acclimate.errors import AcclimateWarning
from acclimate.guard.guard import Guard, drift
from acclimate.learner.learner import Learner, StepResult
from acclimate.methods.registry import get_recipe
from nets import bn_net, images, same_tensors
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


def check_duties(recipe: str, options: Mapping[str, Any], model: nn.Module | None = None) -> None:
    """A stream and a run of adapt work, repeat, go on from a state, and the guard watches both.

    One broken image, one image alone and double precision are borne.
    """
    net = bn_net() if model is None else model
    batches = [images(16, seed=seed) for seed in range(4)]

    def stream() -> acclimate.Stream:
        return acclimate.Stream(net, recipe, options=options, batch_size=16)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AcclimateWarning)
        whole, first, second = stream(), stream(), stream()
        answers = [whole(batch) for batch in batches]
        for batch in batches[:2]:
            first(batch)
        second.load_state_dict(first.state_dict())
        for batch, answer in zip(batches[2:], answers[2:], strict=True):
            assert torch.equal(second(batch), answer)
        assert same_tensors(second.learner.state_tensors(), whole.learner.state_tensors())
        whole.reset()
        assert torch.equal(whole(batches[0]), answers[0])
        wary = acclimate.Stream(
            net, recipe, options=options, batch_size=16, guard=Guard(check_every=1, max_drift=1e-9)
        )
        wary(batches[0])
        assert [event.action for event in wary.events] == ["went back to step 0"]
        assert drift(wary.learner) == 0
        broken = batches[0].clone()
        broken[0] = float("nan")
        assert torch.isfinite(whole(broken)[1:]).all()
        assert torch.isfinite(whole(batches[1])).all()
        assert torch.isfinite(whole(batches[2][:1])).all()
        assert torch.isfinite(second.double()(batches[0].double())).all()

        result = run(net, batches, recipe, options)
        with tempfile.TemporaryDirectory() as folder:
            with killed_after(2), pytest.raises(KeyboardInterrupt):
                run(net, batches, recipe, options, out=folder)
            resumed = run(net, batches, recipe, options, out=folder)
    assert torch.equal(resumed.predictions, result.predictions)
    assert same_tensors(resumed.model.state_dict(), result.model.state_dict())
    with torch.no_grad():
        alone = torch.cat([result.model(batch) for batch in batches]).argmax(dim=1)
    assert torch.equal(alone, result.predictions)


def run(
    net: nn.Module, batches: list[Tensor], recipe: str, options: Mapping[str, Any], **more: Any
) -> acclimate.AdaptationResult:
    """adapt() to some batches, with a checkpoint after each where there is a folder for it."""
    return acclimate.adapt(
        net,
        torch.cat(batches),
        recipe,
        options=options,
        batch_size=16,
        progress=False,
        checkpoint_every=0,
        **more,
    )


def killed_after(steps: int) -> Any:
    """As if the user had stopped the run."""
    take, taken = Learner.step, 0

    def step(learner: Learner, images: Tensor) -> StepResult:
        nonlocal taken
        if taken == steps:
            raise KeyboardInterrupt
        taken += 1
        return take(learner, images)

    return patch.object(Learner, "step", step)
