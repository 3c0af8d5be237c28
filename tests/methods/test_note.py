"""NOTE: its batch norm, its memory and its step, each beside a version written out here."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.learner.learner import Learner
from acclimate.methods.memory import Kept, MemoryState
from acclimate.methods.note import PredictionBalancedReservoir
from acclimate.methods.registry import get_recipe
from nets import bn_net, images, same_tensors

LR = 0.02
BATCHES = [images(8, seed=seed).double() for seed in range(5)]


class InstanceAwareNorm(nn.Module):
    """As the authors write it, image by image and channel by channel."""

    def __init__(self, layer: nn.BatchNorm2d, k: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps, self.k = layer.weight, layer.bias, layer.eps, k
        self.mean, self.var = layer.running_mean, layer.running_var

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.mean, self.var
        if self.training:
            mean, var = x.mean(dim=(0, 2, 3)), x.var(dim=(0, 2, 3), unbiased=True)
            self.mean = 0.99 * self.mean + 0.01 * mean.detach()
            self.var = 0.99 * self.var + 0.01 * var.detach()
        rows = [
            torch.stack([self.one(c, plane, mean[c], var[c]) for c, plane in enumerate(image)])
            for image in x
        ]
        return torch.stack(rows)

    def one(self, c: int, plane: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        n = plane.numel()
        mean_bound = self.k * ((var + self.eps) / n).sqrt()
        var_bound = self.k * (var + self.eps) * math.sqrt(2 / (n - 1))
        relu = nn.functional.relu
        off, apart = plane.mean() - mean, plane.var(unbiased=True) - var
        mean = mean + relu(off - mean_bound) - relu(-off - mean_bound)
        var = relu(var + relu(apart - var_bound) - relu(-apart - var_bound))
        return (plane - mean) / (var + self.eps).sqrt() * self.weight[c] + self.bias[c]


def instance_aware_net(k: float) -> nn.Sequential:
    net = bn_net().double().requires_grad_(False)
    layers = [InstanceAwareNorm(m, k) if isinstance(m, nn.BatchNorm2d) else m for m in net]
    for layer in layers:
        if isinstance(layer, InstanceAwareNorm):
            layer.requires_grad_(True)
    return nn.Sequential(*layers)


def mode(net: nn.Module, training: bool) -> nn.Module:
    for module in net.modules():
        if isinstance(module, InstanceAwareNorm):
            module.training = training
        elif isinstance(module, nn.Dropout):
            module.eval()
    return net


class WrittenOutReservoir:
    """The published algorithm; what is drawn is drawn in the same order."""

    def __init__(self, capacity: int, draw: torch.Generator) -> None:
        self.capacity, self.draw = capacity, draw
        self.items: list[tuple[Any, int]] = []
        self.came: dict[int, int] = {}

    def offer(self, image: Any, label: int) -> None:
        self.came[label] = self.came.get(label, 0) + 1
        if len(self.items) >= self.capacity and not self.make_room(label):
            return
        self.items.append((image, label))

    def make_room(self, label: int) -> bool:
        sizes: dict[int, int] = {}
        for _, its in self.items:
            sizes[its] = sizes.get(its, 0) + 1
        largest = [c for c, size in sizes.items() if size == max(sizes.values())]
        if label in largest:
            if float(torch.rand((), generator=self.draw)) > sizes[label] / self.came[label]:
                return False
            largest = [label]
        places = [i for i, (_, its) in enumerate(self.items) if its in largest]
        self.items.pop(places[int(torch.randint(len(places), (), generator=self.draw))])
        return True


def learner(model: nn.Module | None = None, **options: Any) -> Learner:
    changes: dict[str, Any] = {"optimizer.lr": LR, "filter.capacity": 10}
    changes |= {key.replace("__", "."): value for key, value in options.items()}
    return Learner(bn_net().double() if model is None else model, get_recipe("note", changes))


@pytest.mark.parametrize("k", [0.0, 1.0, 4.0, 1e6])
def test_five_steps_equal_plain_pytorch(k: float) -> None:
    net = instance_aware_net(k)
    affine = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(affine, lr=LR)
    memory = WrittenOutReservoir(10, torch.Generator().manual_seed(0))
    answers = []
    for x in BATCHES:
        with torch.no_grad():
            answers.append(mode(net, False)(x))
        for image, label in zip(x, answers[-1].argmax(dim=1).tolist(), strict=True):
            memory.offer(image, label)
        p = mode(net, True)(torch.stack([image for image, _ in memory.items])).softmax(dim=1)
        optimizer.zero_grad()
        (-(p * p.log()).sum() / len(p)).backward()
        optimizer.step()

    ours = learner(normalization__strength=k)
    torch.testing.assert_close([ours.step(x).logits for x in BATCHES], answers, atol=1e-7, rtol=0)
    torch.testing.assert_close(list(ours.learning.values()), affine, atol=1e-7, rtol=0)
    assert (ours.learning["1.weight"] - bn_net().double()[1].weight).abs().max() > 1e-3
    for index in (1, 4):
        torch.testing.assert_close(ours.statistics.running[f"{index}.mean"], net[index].mean)
        torch.testing.assert_close(ours.statistics.running[f"{index}.var"], net[index].var)


def test_at_the_usual_strength_some_statistics_are_corrected_and_some_are_not() -> None:
    x = torch.cat([BATCHES[0], 5 * BATCHES[1]])
    plain, none = learner(), learner(normalization__strength=1e6)
    far = (plain.predict(x) - none.predict(x)).abs().amax(dim=1) > 1e-9
    assert far[8:].all()
    with torch.no_grad():
        torch.testing.assert_close(none.predict(x), bn_net().double()(x))


def test_the_reservoir_keeps_what_the_published_one_keeps() -> None:
    draw = torch.Generator().manual_seed(1)
    ours = PredictionBalancedReservoir(capacity=12)
    state = MemoryState(torch.Generator().manual_seed(5), arrived=torch.zeros(4, dtype=torch.int64))
    theirs = WrittenOutReservoir(12, torch.Generator().manual_seed(5))
    kept: list[Kept] = []
    for i in range(200):
        label = int(torch.randint(0, 4, (), generator=draw)) if i % 50 < 25 else 2
        state.arrived[label] += 1
        ours.admit(state, kept, Kept(i, label, 0.0), classes=4)
        theirs.offer(i, label)
        assert [(each.index, each.label) for each in kept] == theirs.items
    counts = [[each.label for each in kept].count(label) for label in range(4)]
    assert counts == [3, 3, 3, 3]
    assert min(each.index for each in kept) < 100, "a reservoir remembers the past"


def test_the_prediction_and_one_look_at_the_memory() -> None:
    ours = learner()
    for x in BATCHES:
        ours.step(x)
    assert (ours.forwards, ours.backwards) == (5 * 2, 5)


def test_predictions_do_not_depend_on_the_rest_of_the_batch() -> None:
    ours = learner()
    ours.step(BATCHES[0])
    together = ours.predict(BATCHES[1])
    alone = torch.cat([ours.predict(x[None]) for x in BATCHES[1]])
    torch.testing.assert_close(together, alone)
    before = {name: tensor.clone() for name, tensor in ours.state_tensors().items()}
    ours.predict(BATCHES[2])
    assert same_tensors(before, ours.state_tensors())


def test_layers_without_positions_and_single_images() -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.BatchNorm1d(6), nn.Linear(6, 5))

    ours = learner(make())
    for x in images(3).split(1):
        result = ours.step(x)
        assert torch.isfinite(result.logits).all()
        assert torch.isfinite(result.loss)


def test_adapt_takes_its_predictions_from_the_method() -> None:
    result = acclimate.adapt(
        bn_net(), images(40), "note", batch_size=10, guard="observe", progress=False
    )
    assert not result.recipe.exports
    assert result.predictions.shape == (40,)
