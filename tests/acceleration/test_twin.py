"""A twin says and learns what the model does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.acceleration import PLAIN, Acceleration, make_twin
from acclimate.acceleration.convolution import FrozenConv, StemConv
from acclimate.acceleration.norm import FusedNorm, Pool, Statistics, fused_norm, mean_pool
from acclimate.errors import AcclimateWarning
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models.libraries import import_torchvision
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


def assert_alike(model: nn.Module, twin: nn.Module, x: Tensor, learning: list[Tensor]) -> None:
    theirs, ours = answer_and_gradients(model, x, learning), answer_and_gradients(twin, x, learning)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    for one, other in zip(ours[1], theirs[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("channels", [16, 12])
def test_a_twin_gives_the_same_predictions_and_the_same_gradients(
    batch: bool, channels: int
) -> None:
    model = Residual(channels)
    learning = ready(model, batch=batch)
    twin = make_twin(model, dtype=torch.float32)
    assert twin is not None
    kinds = [type(module) for module in twin.modules()]
    assert (kinds.count(FusedNorm), kinds.count(FrozenConv), kinds.count(StemConv)) == (2, 1, 1)
    assert nn.ReLU not in {type(twin.get_submodule(str(n.target))) for n in twin.graph.nodes
                           if n.op == "call_module"}  # fmt: skip
    x = torch.rand(4, 3, 20, 28)
    assert_alike(model, twin, x, learning)


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
    left, right = fused_norm(x, one, one, statistics=source, activation="relu", fork=True)
    (both,) = torch.autograd.grad(left.sum() + 2 * right.sum(), one, retain_graph=True)
    (first,) = torch.autograd.grad(left.sum(), one)
    torch.testing.assert_close(both, 3 * first)


def test_pooling_looks_only_at_what_it_let_through() -> None:
    x = torch.randn(2, 8, 9, 7)
    weight, bias = torch.rand(8, requires_grad=True), torch.randn(8, requires_grad=True)
    source = Statistics(torch.zeros(8), torch.ones(8), 1e-5, True)
    ours = fused_norm(x, weight, bias, statistics=source, activation="relu", pool=Pool(3, 2, 1))
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


# What a twin must not do


def fused(model: nn.Module, recipe: str = "ent", **options: Any) -> Learner:
    how = Acceleration(fused=True)
    return Learner(model, get_recipe(recipe, {"optimizer.lr": 0.01, **options}), acceleration=how)


def test_arguments_with_defaults_stay_at_their_defaults() -> None:
    class Labelled(Residual):
        def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
            logits = super().forward(x)
            return logits if labels is None else F.cross_entropy(logits, labels)

    assert fused(Labelled()).step(torch.rand(8, 3, 16, 16)).logits.shape == (8, 5)


def test_a_scaled_sum_is_no_plain_one() -> None:
    class Scaled(Residual):
        def forward(self, x: Tensor) -> Tensor:
            x = self.pool(self.relu(self.first(self.stem(x))))
            out = self.relu(torch.add(self.second(self.conv(x)), x, alpha=0.1))
            logits: Tensor = self.last(out.mean(dim=(2, 3)))
            return logits

    model = Scaled()
    ready(model, batch=True)
    twin = make_twin(model, dtype=torch.float32)
    assert twin is not None
    x = torch.rand(4, 3, 16, 16)
    torch.testing.assert_close(twin(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["", "conv", "relu", "pool"])
def test_hooks_are_heard(name: str) -> None:
    model = Residual()
    calls: list[int] = []
    learner = fused(model)
    learner.step(torch.rand(8, 3, 16, 16))
    learner.model.get_submodule(name).register_forward_hook(lambda *_: calls.append(1))
    learner.step(torch.rand(8, 3, 16, 16))
    assert calls


def test_a_hook_that_changes_the_images_changes_them_for_the_source_too() -> None:
    def darker(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0] * 0.5,)

    models = [Residual(), Residual()]
    for model in models:
        model.register_forward_pre_hook(darker)
    exact = Learner(models[0], get_recipe("ent", {}))
    fast = fused(models[1])
    x = torch.rand(8, 3, 16, 16)
    ours, theirs = fast.source_forward(x).logits, exact.source_forward(x).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_parameters_off_the_path_may_learn() -> None:
    class Auxiliary(Residual):
        def __init__(self) -> None:
            super().__init__()
            self.aux = nn.BatchNorm2d(16)

    learner = fused(Auxiliary(), "rpl-epoch")
    for _ in range(2):
        learner.start_epoch()
        learner.step(torch.rand(8, 3, 16, 16))
    assert torch.isfinite(learner.source_forward(torch.rand(8, 3, 16, 16)).logits).all()


def test_new_weights_are_new_in_the_twin_too() -> None:
    learner, other = fused(Residual()), Residual()
    x = torch.rand(8, 3, 16, 16)
    learner.step(x)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1.5)
    learner.model.load_state_dict(other.state_dict())
    exact = Learner(other, get_recipe("ent", {}))
    torch.testing.assert_close(learner.predict(x), exact.predict(x), rtol=1e-3, atol=1e-4)


def test_a_twin_that_fails_is_given_up_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(FusedNorm, "forward", broken)  # as where Triton finds no compiler
    learner = fused(Residual())
    with pytest.warns(AcclimateWarning, match="no compiler here; it runs as PyTorch"):
        assert learner.step(torch.rand(8, 3, 16, 16)).logits.shape == (8, 5)
    assert learner.network.acceleration == PLAIN


def test_checking_counts_in_no_pool() -> None:
    x = torch.rand(32, 3, 16, 16)
    learner = fused(Residual())
    pool = learner.statistics.pool()
    learner.predict(x)
    pool.close()
    (count, _, _) = pool._sums["first"]
    assert int(count) == 32 * 8 * 8


def test_a_copy_goes_its_own_way() -> None:
    learner = fused(Residual())
    x = torch.rand(8, 3, 16, 16)
    learner.step(x)
    copied = copy.deepcopy(learner)
    before = learner.predict(x)
    for _ in range(3):
        copied.step(x)
    torch.testing.assert_close(learner.predict(x), before)
    assert not torch.equal(copied.predict(x), before)


def test_the_record_says_what_was_done() -> None:
    learner = Learner(Branching(), get_recipe("ent", {}), acceleration=Acceleration(fused=True))
    learner.step(torch.rand(8, 3, 4, 4))
    learner.release()
    assert not learner.ran.fused


# Activations


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.SiLU])
@pytest.mark.parametrize("two", [True, False])
def test_activations_are_taken_in(activation: type[nn.Module], two: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
            self.act, self.behind, self.last = activation(), nn.Conv2d(8, 8, 1), nn.Linear(8, 5)

        def forward(self, x: Tensor) -> Tensor:
            x = self.act(self.norm(self.conv(x)))
            x = self.behind(x) * x.mean(dim=(2, 3), keepdim=True) if two else self.behind(x)
            logits: Tensor = self.last(x.mean(dim=(2, 3)))
            return logits

    model = Net()
    learning = ready(model, batch=True)
    twin = make_twin(model, dtype=torch.float32)
    assert twin is not None
    assert "act" not in {node.target for node in twin.graph.nodes}
    x = torch.rand(4, 3, 9, 9)
    assert_alike(model, twin, x, learning)


def test_timms_batch_norm_keeps_its_activation() -> None:
    import_torchvision()
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("efficientnet_lite0", num_classes=5)
    learning = ready(model, batch=True)
    twin = make_twin(model, dtype=torch.float32)
    assert twin is not None
    kinds = [type(module) for module in twin.modules()]
    assert kinds.count(FusedNorm) == len(learning) // 2
    x = torch.rand(4, 3, 64, 64)
    theirs, ours = answer_and_gradients(model, x, learning), answer_and_gradients(twin, x, learning)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-3, atol=1e-4)
    cosine = F.cosine_similarity(
        *(torch.cat([g.flatten() for g in one[1]]) for one in (ours, theirs)), 0
    )
    assert float(cosine) > 0.999


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 4, 6, 8), (2,)),
        ((2, 4, 7, 8), (2, None, 0, True)),
        ((2, 4, 6, 8), (3, 3, 1)),
        ((2, 4, 6, 8), (2, 1)),
        ((2, 4, 6, 8), ((2, 4),)),
        ((2, 4, 6, 8), (2, None, 0, False, True, 3)),
        ((4, 6, 8), (2,)),
        ((0, 4, 6, 8), (2,)),
    ],
)
@pytest.mark.parametrize("last", [True, False])
def test_average_pooling_as_a_mean(
    shape: tuple[int, ...], options: tuple[Any, ...], last: bool
) -> None:
    x = torch.rand(shape)
    if last and x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_(True)
    ours, theirs = mean_pool(x, *options), F.avg_pool2d(x, *options)
    torch.testing.assert_close(ours, theirs)
    weights = torch.rand(theirs.shape)
    one, other = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (ours, theirs))
    torch.testing.assert_close(one, other)
    if last and x.ndim == 4:  # or the next layer would copy them
        assert ours.is_contiguous(memory_format=torch.channels_last)
        assert one.is_contiguous(memory_format=torch.channels_last)


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.pool = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AvgPool2d(2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(input=self.pool(self.norm(self.conv(x))), kernel_size=3, ceil_mode=True)
        return self.head(x.mean((2, 3)))


def test_a_twin_pools_by_means() -> None:
    model = Pooled()
    learning = ready(model, batch=True)
    twin = make_twin(model, dtype=torch.float32)
    assert twin is not None
    assert [node.target for node in twin.graph.nodes].count(mean_pool) == 2
    x = torch.rand(4, 3, 14, 14).contiguous(memory_format=torch.channels_last)
    assert_alike(model, twin, x, learning)
