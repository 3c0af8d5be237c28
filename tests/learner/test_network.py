"""A model as the learner asks it: the weights that count are those it has now."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from acclimate.acceleration import EXACT, Acceleration
from acclimate.learner.learner import Learner
from acclimate.learner.network import Network
from acclimate.methods.registry import get_recipe, list_recipes
from acclimate.parts.statistics import StatisticsControl
from acclimate.stream import Stream
from nets import Residual, bn_net, images

FUSED = Acceleration(channels_last=True, fused=True)
LR = {"optimizer.lr": 0.05}


@pytest.mark.parametrize("how", [EXACT, FUSED])
def test_a_surrounding_autocast_is_no_reason_to_see_old_weights(how: Acceleration) -> None:
    options = {**LR, "selector": "all"}
    inside, outside = (
        Learner(bn_net(), get_recipe("ent", options), acceleration=how) for _ in range(2)
    )
    batches = [images(8, seed=seed) for seed in range(4)]
    expected = [outside.step(x).logits for x in batches]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = [inside.step(x).logits for x in batches]
    torch.testing.assert_close(seen, expected)


class InHalf(nn.Module):
    """A model that asks for half precision itself."""

    def __init__(self) -> None:
        super().__init__()
        self.net = bn_net()

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits: Tensor = self.net(x)
        return logits


def test_a_second_look_within_a_step_sees_weights_that_moved() -> None:
    network = Network(InHalf().eval())
    x, nothing = images(4), StatisticsControl({})
    with EXACT.kernels(x.device):
        before = network.logits(x, nothing)
        with torch.no_grad():
            for parameter in network.model.parameters():
                parameter.mul_(0.5)
        after = network.logits(x, nothing)
    assert not torch.allclose(before, after, atol=0.01)
    torch.testing.assert_close(after, network.logits(x, nothing))


class Tied(nn.Module):
    """Two norm layers with one scale; the second to be made is the first to be asked."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.late, self.early = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.early.weight, self.early.bias = self.late.weight, self.late.bias
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.late(self.early(self.conv(x)).relu())
        return self.last(x.mean(dim=(2, 3)))


def test_other_weights_reach_parameters_of_two_names() -> None:
    plain, fused = (Network(Tied().eval()) for _ in range(2))
    fused.accelerate(FUSED, verified=True)
    others = {"late.weight": torch.full((4,), 3.0), "late.bias": torch.ones(4)}
    x = images(4)
    expected, seen = (net.logits(x, StatisticsControl({}), others) for net in (plain, fused))
    torch.testing.assert_close(seen, expected)
    assert not torch.allclose(seen, fused.logits(x, StatisticsControl({})))


def _fused() -> Network:
    network = Network(Residual().eval().requires_grad_(False))
    network.accelerate(FUSED, verified=True)
    network.logits(images(4), StatisticsControl({}))
    return network


def test_weights_that_were_changed_from_outside_are_seen() -> None:
    x = images(4)
    for change in (_scale_one, _load_a_part, _replace_one):
        network = _fused()
        change(network.model)
        expected = copy.deepcopy(network.model)(x)
        torch.testing.assert_close(network.logits(x, StatisticsControl({})), expected)


def _convolution(model: nn.Module) -> nn.Conv2d:
    return next(module for module in model.modules() if isinstance(module, nn.Conv2d))


@torch.no_grad()
def _scale_one(model: nn.Module) -> None:
    _convolution(model).weight.mul_(-1)


def _load_a_part(model: nn.Module) -> None:
    part = _convolution(model)
    part.load_state_dict({name: -tensor for name, tensor in part.state_dict().items()})


def _replace_one(model: nn.Module) -> None:
    part = _convolution(model)
    part.weight = nn.Parameter(-part.weight, requires_grad=False)


@pytest.mark.parametrize(
    "recipe", [r.name for r in list_recipes() if r.name not in ("dino", "rem", "ttt")]
)
def test_no_recipe_makes_it_begin_anew_with_every_step(recipe: str) -> None:
    learner = Learner(Residual(), get_recipe(recipe), acceleration=FUSED)
    learner.network.unverified = False
    learner.start_epoch()
    for seed in range(2):
        learner.step(images(4, seed=seed, size=16))
    made = learner.network._cache
    learner.step(images(4, seed=2, size=16))
    assert learner.network._cache is made


def test_a_copy_of_an_accelerated_stream_leaves_nothing_on_its_model() -> None:
    stream = Stream(Residual(), "ent", options=LR)
    stream.learner.network.accelerate(FUSED, verified=True)
    other = copy.deepcopy(stream)
    other.learner.release()
    assert not other.model._load_state_dict_post_hooks
    assert not stream.model._load_state_dict_post_hooks
