"""Where batch-norm statistics come from."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import AcclimateWarning
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models.layers import batch_norm_layers
from acclimate.models.libraries import import_torchvision
from acclimate.parts.normalization import Running
from acclimate.parts.statistics import StatisticsControl
from nets import bn_net, gn_net, images, same_tensors, snapshot

X = images(12)
KINDS = ["source", "batch", "mixture", "running"]


def learner_with(kind: str, model: nn.Module | None = None, **options: Any) -> Learner:
    changes = {f"normalization.{k}": v for k, v in options.items()}
    recipe = get_recipe("ent", {"normalization": kind, "optimizer.lr": 0.05, **changes})
    return Learner(bn_net() if model is None else model, recipe)


def logits(kind: str, model: nn.Module | None = None, x: Tensor = X, **options: Any) -> Tensor:
    return learner_with(kind, model, **options).predict(x)


def train_mode_logits(model: nn.Module, x: Tensor = X) -> Tensor:
    """Batch norms in training mode, all else (dropout!) not."""
    model = copy.deepcopy(model).eval()
    for layer in batch_norm_layers(model).values():
        layer.train()
    return model(x).detach()


def mixed(x: Tensor, layer: nn.BatchNorm2d, prior: float) -> Tensor:
    """Schneider et al. 2020, eq. 2, written out."""
    n = len(x)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    mean = (prior * layer.running_mean + n * x.mean(dim=(0, 2, 3))) / (prior + n)
    batch_var = x.var(dim=(0, 2, 3), unbiased=False)
    var = (prior * layer.running_var + n * batch_var) / (prior + n)
    per_channel = (1, -1, 1, 1)
    scaled = (x - mean.view(per_channel)) / (var + layer.eps).sqrt().view(per_channel)
    return scaled * layer.weight.view(per_channel) + layer.bias.view(per_channel)


def mixture_by_hand(net: nn.Module, x: Tensor, prior: float) -> Tensor:
    for module in net.children():
        x = mixed(x, module, prior) if isinstance(module, nn.BatchNorm2d) else module(x)
    return x


def test_source_statistics_leave_the_outputs_untouched() -> None:
    assert torch.equal(logits("source"), bn_net()(X))


def test_batch_statistics_are_batch_norm_in_training_mode() -> None:
    torch.testing.assert_close(logits("batch"), train_mode_logits(bn_net()))
    assert not torch.allclose(logits("batch"), logits("source"))


@pytest.mark.parametrize("prior", [1.0, 16.0, 100.0])
def test_mixture_is_its_formula(prior: float) -> None:
    expected = mixture_by_hand(bn_net(), X, prior)
    torch.testing.assert_close(logits("mixture", prior=prior), expected)


def test_gradients_flow_through_the_batchs_share() -> None:
    net = bn_net()
    net.requires_grad_(True)
    target = torch.arange(len(X)) % 5
    plain = F.cross_entropy(mixture_by_hand(net, X, 16.0), target)
    expected = torch.autograd.grad(plain, [net[0].weight, net[1].weight])
    control = StatisticsControl(batch_norm_layers(net))
    control.use(len(X) / (16 + len(X)))
    ours = torch.autograd.grad(F.cross_entropy(net(X), target), [net[0].weight, net[1].weight])
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=1e-4)


def test_mixture_with_no_prior_is_the_batch_and_with_an_endless_one_the_source() -> None:
    torch.testing.assert_close(logits("mixture", prior=0), logits("batch"))
    torch.testing.assert_close(logits("mixture", prior=1e12), logits("source"))


def test_running_estimate_follows_its_recursion() -> None:
    net = bn_net()
    first: nn.Module = net[0]
    learner = learner_with("running", net, momentum=0.3)
    layer = net[1]
    mean, var = layer.running_mean.clone(), layer.running_var.clone()
    for seed in range(3):
        x = images(8, seed=seed)
        learner.step(x)
        h = first(x)
        mean = 0.7 * mean + 0.3 * h.mean(dim=(0, 2, 3))
        var = 0.7 * var + 0.3 * h.var(dim=(0, 2, 3), unbiased=False)
        torch.testing.assert_close(learner.statistics.running["1.mean"], mean)
        torch.testing.assert_close(learner.statistics.running["1.var"], var)


def test_running_estimate_with_momentum_one_is_the_batch() -> None:
    learner = Learner(bn_net(), get_recipe("bn", {"normalization": Running(momentum=1.0)}))
    torch.testing.assert_close(learner.forward(X).logits, logits("batch"))


def test_a_pass_that_does_not_learn_reads_the_estimate_and_not_the_batch() -> None:
    learner = Learner(bn_net(), get_recipe("ent", {"normalization": "running"}))
    student = learner.forward(X).logits
    same_weights = learner.forward(X, learning=False).logits
    torch.testing.assert_close(same_weights, student)  # teacher and student see one estimate
    alone = torch.cat([learner.forward(x[None], learning=False).logits for x in X])
    torch.testing.assert_close(alone, student)


def test_the_running_estimate_is_what_the_exported_model_holds() -> None:
    learner = Learner(bn_net(), get_recipe("ent", {"normalization": "running"}))
    for _ in range(3):
        learner.step(X)
    expected = learner.predict(X)
    model = learner.release()
    with torch.no_grad():
        torch.testing.assert_close(model(X), expected)


def test_dropout_inside_a_norm_layer_stays_off() -> None:
    class Fused(nn.BatchNorm2d):
        def __init__(self, channels: int) -> None:
            super().__init__(channels)
            self.drop = nn.Dropout(0.5)

    net = nn.Sequential(Fused(3), nn.Flatten(), nn.Linear(192, 5))
    learner = Learner(net, get_recipe("ent"))
    learner.step(X)
    fused = net[0]
    assert isinstance(fused, Fused)
    assert fused.training
    assert not fused.drop.training


def test_teachers_read_the_running_estimate_and_do_not_move_it() -> None:
    recipe = get_recipe("hard", {"normalization": "running"})
    with_teacher = Learner(bn_net(), recipe)
    without = Learner(bn_net(), get_recipe("ent", {"normalization": "running"}))
    with_teacher.step(X)
    without.step(X)
    assert same_tensors(with_teacher.statistics.running, without.statistics.running)


@pytest.mark.parametrize("kind", KINDS)
def test_buffers_are_never_written_while_learning(kind: str) -> None:
    learner = learner_with(kind)
    before = {k: v.clone() for k, v in learner.model.named_buffers()}
    for seed in range(3):
        learner.step(images(8, seed=seed))
        learner.predict(X)
        learner.source_forward(X)
    assert same_tensors(dict(learner.model.named_buffers()), before)


@pytest.mark.parametrize("kind", KINDS)
def test_group_norm_has_no_statistics_to_choose(kind: str) -> None:
    assert torch.equal(logits(kind, gn_net()), gn_net()(X))


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_and_stochastic_depth_stay_off(kind: str) -> None:
    import_torchvision()
    import timm

    torch.manual_seed(0)
    net = timm.create_model("resnet10t", num_classes=4, drop_rate=0.5, drop_path_rate=0.5).train()
    x = images(4, size=32)
    learner = learner_with(kind, net)
    seen = [learner.forward(x, learning=False).logits for _ in range(2)]
    assert torch.equal(*seen)
    assert not any(m.training for m in net.modules() if "Drop" in type(m).__name__)


@pytest.mark.parametrize("kind", KINDS)
def test_fused_batch_norm_and_activation(kind: str) -> None:
    import_torchvision()
    from timm.layers import BatchNormAct2d

    fused, plain = bn_net(), bn_net()
    for i in (1, 4):
        norm = BatchNormAct2d(fused[i].num_features)
        norm.load_state_dict(fused[i].state_dict())
        fused[i], fused[i + 1] = norm, nn.Identity()
    torch.testing.assert_close(logits(kind, fused), logits(kind, plain))


@pytest.mark.parametrize(
    ("norm", "shape"),
    [(nn.BatchNorm1d, (6,)), (nn.BatchNorm1d, (6, 7)), (nn.BatchNorm3d, (6, 2, 3, 4))],
)
def test_mixture_in_one_and_three_dimensions(norm: Any, shape: tuple[int, ...]) -> None:
    layer = norm(6)
    layer.running_mean.normal_(generator=torch.Generator().manual_seed(0))
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(1))
    dims = (0, *range(2, x.ndim))
    expand = (1, -1, *[1] * (x.ndim - 2))
    mean = 0.25 * x.mean(dims) + 0.75 * layer.running_mean
    var = 0.25 * x.var(dims, unbiased=False) + 0.75 * layer.running_var
    expected = (x - mean.view(expand)) / (var.view(expand) + layer.eps).sqrt()
    control = StatisticsControl({"": layer.eval()})
    control.use(0.25)
    torch.testing.assert_close(layer(x), expected)
    control.release()
    torch.testing.assert_close(
        layer(x)[0, 0], (x[0, 0] - layer.running_mean[0]) / (1 + 1e-5) ** 0.5
    )


def test_a_batch_of_one_is_mixed_with_the_source_and_says_so() -> None:
    with pytest.warns(AcclimateWarning, match=r"mixed with the source's \(1 : 16\)"):
        single = logits("batch", x=X[:1])
    torch.testing.assert_close(single, mixture_by_hand(bn_net(), X[:1], 16.0))


def test_a_batch_of_one_is_nothing_special_without_batch_norm() -> None:
    assert torch.equal(logits("batch", gn_net(), x=X[:1]), gn_net()(X[:1]))


@pytest.mark.parametrize("in_use", [None, 1.0, 0.4])
def test_pooled_statistics_are_those_of_all_the_data_at_once(in_use: float | None) -> None:
    net = nn.Sequential(nn.BatchNorm2d(3)).eval()
    control = StatisticsControl(batch_norm_layers(net))
    if in_use is not None:
        control.use(in_use)  # whatever the layer makes of its input, the input is what counts
    pool = control.pool()
    x = images(11, shift=3.0)
    for ragged in x.split([5, 1, 3, 2]):
        net(ragged)
    pool.close()
    net(images(4, shift=100.0))  # no longer gathered
    mean, var = pool.statistics()["0"]
    torch.testing.assert_close(mean.float(), x.mean(dim=(0, 2, 3)))
    torch.testing.assert_close(var.float(), x.var(dim=(0, 2, 3), unbiased=False))


def test_pooled_statistics_are_written_into_the_plain_model() -> None:
    net = bn_net()
    control = StatisticsControl(batch_norm_layers(net))
    control.use(1.0)
    pool = control.pool()
    expected = net(X).detach()
    pool.close()
    before = control.buffers()
    control.write(pool, weight=1.0)
    control.release()
    torch.testing.assert_close(net(X), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(net(X[:1]), expected[:1], atol=1e-5, rtol=1e-4)
    control.load_buffers(before)
    assert same_tensors(snapshot(net), snapshot(bn_net()))


def test_distances_are_in_units_of_the_sources_deviation() -> None:
    net = nn.Sequential(nn.BatchNorm1d(2)).eval()
    net[0].running_var.fill_(4.0)
    control = StatisticsControl(batch_norm_layers(net))
    pool = control.pool()
    net(torch.tensor([[-2.0, -2.0], [2.0, 2.0]]) + 6.0)  # mean 6 = 3 deviations, same spread
    assert control.distances(pool) == [pytest.approx(3.0, abs=1e-4)]


def test_a_copy_moves_its_own_estimate() -> None:
    learner = Learner(bn_net(), get_recipe("ent", {"normalization": "running"}))
    learner.step(images())
    before = {name: tensor.clone() for name, tensor in learner.statistics.running.items()}
    other = copy.deepcopy(learner)
    other.step(images(seed=1))
    assert same_tensors(learner.statistics.running, before)
    assert not same_tensors(other.statistics.running, before)


def test_a_mixture_in_float16_squares_nothing_that_overflows() -> None:
    layer = nn.BatchNorm2d(3).requires_grad_(False)
    x = images(4) * 600
    fine, coarse = (
        StatisticsControl({"": copy.deepcopy(layer).to(dtype)})
        for dtype in (torch.float32, torch.float16)
    )
    for control in (fine, coarse):
        control.use(0.5)
    expected, seen = fine.layers[""](x), coarse.layers[""](x.half())
    assert seen.dtype == torch.float16
    torch.testing.assert_close(seen.float(), expected, rtol=0.01, atol=0.01)
