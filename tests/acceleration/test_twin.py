"""A twin says and learns what the model does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.acceleration import Acceleration, make_twin
from acclimate.acceleration.frozen_conv import FrozenConv
from acclimate.acceleration.fused_norm import FusedNorm, Pool, Statistics, fused_norm
from acclimate.acceleration.stem_conv import StemConv
from acclimate.learner import Learner
from acclimate.recipes import get_recipe
from nets import Residual


def ready(model: nn.Module, *, batch: bool) -> list[Tensor]:
    """Only scale and offset learn; the statistics are the batch's or the source's."""
    model.eval().requires_grad_(False)
    learning: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.training, module.track_running_stats = batch, not batch
            learning += [module.weight.requires_grad_(True), module.bias.requires_grad_(True)]
    return learning


def answer_and_gradients(
    model: nn.Module, x: Tensor, learning: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    logits = model(x)
    loss = F.cross_entropy(logits, torch.arange(len(x)) % 5)
    return logits, list(torch.autograd.grad(loss, learning))


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("channels", [16, 12])
def test_a_twin_gives_the_same_answers_and_the_same_gradients(batch: bool, channels: int) -> None:
    model = Residual(channels)
    learning = ready(model, batch=batch)
    twin = make_twin(model, dtype=torch.float32)
    assert twin is not None
    kinds = [type(module) for module in twin.modules()]
    assert (kinds.count(FusedNorm), kinds.count(FrozenConv), kinds.count(StemConv)) == (2, 1, 1)
    assert nn.ReLU not in {type(twin.get_submodule(str(n.target))) for n in twin.graph.nodes
                           if n.op == "call_module"}  # fmt: skip
    x = torch.rand(4, 3, 20, 28)
    theirs, ours = answer_and_gradients(model, x, learning), answer_and_gradients(twin, x, learning)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    for one, other in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_a_twin_shares_parameters_under_their_names() -> None:
    model = Residual()
    ready(model, batch=True)
    twin = make_twin(model, dtype=torch.bfloat16)
    assert twin is not None
    theirs = dict(model.named_parameters())
    ours = dict(twin.named_parameters())
    assert ours["second.weight"] is theirs["second.weight"]
    assert "conv.weight" not in ours  # a copy in half precision, which is no parameter


def test_gradients_reach_what_learns_before_the_stem() -> None:
    model = Residual()
    learning = ready(model, batch=True)
    twin = make_twin(model, dtype=torch.float32)
    assert twin is not None
    x = torch.rand(4, 3, 20, 28, requires_grad=True)
    (theirs,) = torch.autograd.grad(model(x).square().sum(), x)
    (ours,) = torch.autograd.grad(twin(x).square().sum(), x)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert learning


def test_convolutions_that_learn_are_left_alone() -> None:
    model = Residual().requires_grad_(True)
    twin = make_twin(model, dtype=torch.float32)
    assert twin is not None
    assert twin.get_submodule("conv") is model.conv


class Branching(nn.Module):
    """Its path depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.norm(x).mean(dim=(2, 3))
        return logits if float(logits.detach().sum()) > 0 else -logits


def test_a_model_that_cannot_be_read_has_no_twin_and_runs_all_the_same() -> None:
    assert make_twin(Branching(), dtype=torch.float32) is None
    fast = Acceleration(fused=True)
    learner = Learner(Branching(), get_recipe("ent", {"optimizer.lr": 0.1}), acceleration=fast)
    assert learner.step(torch.rand(8, 3, 4, 4)).logits.shape == (8, 3)


def test_a_model_with_nothing_to_gain_has_no_twin() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))
    assert make_twin(model, dtype=torch.float32) is None


@pytest.mark.parametrize("recipe", ["ent", "rpl", "bn-prior"])
def test_a_learner_learns_the_same_with_a_twin(recipe: str) -> None:
    x = torch.rand(64, 3, 16, 16)
    learners = [
        Learner(Residual(), get_recipe(recipe, {}), acceleration=how)
        for how in (Acceleration(), Acceleration(fused=True))
    ]
    for part in x.split(16):
        exact, fast = (learner.step(part).logits for learner in learners)
        torch.testing.assert_close(fast, exact, rtol=1e-3, atol=1e-4)
    for one, other in zip(*(each.learning.values() for each in learners), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_statistics_are_gathered_through_a_twin() -> None:
    x = torch.rand(32, 3, 16, 16)
    found = []
    for how in (Acceleration(), Acceleration(fused=True)):
        learner = Learner(Residual(), get_recipe("bn"), acceleration=how)
        pool = learner.statistics.pool()
        learner.predict(x)
        pool.close()
        found.append(pool.statistics())
    for name, (mean, var) in found[0].items():
        torch.testing.assert_close(found[1][name][0], mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[1][name][1], var, rtol=1e-4, atol=1e-5)


def test_two_readers_and_none() -> None:
    x = torch.rand(3, 8, 6, 6)
    one = torch.ones(8, requires_grad=True)
    source = Statistics(torch.zeros(8), torch.ones(8), 1e-5, True)
    left, right = fused_norm(x, one, one, statistics=source, relu=True, fork=True)
    (both,) = torch.autograd.grad(left.sum() + 2 * right.sum(), one, retain_graph=True)
    (first,) = torch.autograd.grad(left.sum(), one)
    torch.testing.assert_close(both, 3 * first)


def test_pooling_looks_only_at_what_it_let_through() -> None:
    x = torch.randn(2, 8, 9, 7)
    weight, bias = torch.rand(8, requires_grad=True), torch.randn(8, requires_grad=True)
    source = Statistics(torch.zeros(8), torch.ones(8), 1e-5, True)
    ours = fused_norm(x, weight, bias, statistics=source, relu=True, pool=Pool(3, 2, 1))
    normed = F.batch_norm(x, None, None, weight, bias, training=True)
    theirs = F.max_pool2d(normed.relu(), 3, 2, 1)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    gradient = torch.randn_like(theirs)
    for a, b in zip(
        torch.autograd.grad(ours, (weight, bias), gradient),
        torch.autograd.grad(theirs, (weight, bias), gradient),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
