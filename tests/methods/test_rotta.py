"""RoTTA: its statistics, its memory and its step, each beside a version written out here."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import acclimate
from acclimate.learner.learner import Learner
from acclimate.methods.memory import Kept, MemoryState
from acclimate.methods.registry import get_recipe
from acclimate.methods.rotta import CategoryBalancedMemory
from acclimate.methods.views import jittered
from nets import bn_net, gn_net, images, same_tensors

LR = 0.02
BATCHES = [images(8, seed=seed).double() for seed in range(5)]


class RobustNorm(nn.Module):
    """Batch norm with the running estimate itself, moved first when training."""

    def __init__(self, layer: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.mean, self.var = layer.running_mean, layer.running_var

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.mean, self.var
        if self.training:
            mean = 0.95 * mean + 0.05 * x.mean(dim=(0, 2, 3))
            var = 0.95 * var + 0.05 * x.var(dim=(0, 2, 3), unbiased=False)
            self.mean, self.var = mean.detach(), var.detach()
        shape = (1, -1, 1, 1)
        normal = (x - mean.view(shape)) / (var.view(shape) + self.eps).sqrt()
        return normal * self.weight.view(shape) + self.bias.view(shape)


def robust_net() -> nn.Sequential:
    net = bn_net().double().requires_grad_(False)
    layers = [RobustNorm(m) if isinstance(m, nn.BatchNorm2d) else m for m in net]
    for layer in layers:
        if isinstance(layer, RobustNorm):
            layer.requires_grad_(True)
    return nn.Sequential(*layers)


def mode(net: nn.Module, training: bool) -> nn.Module:
    for module in net.modules():
        if isinstance(module, RobustNorm):
            module.training = training
        elif isinstance(module, nn.Dropout):
            module.eval()
    return net


class WrittenOutMemory:
    """The published algorithm with one list for each class."""

    def __init__(self, capacity: int, classes: int) -> None:
        self.capacity, self.classes = capacity, classes
        self.lists: list[list[Any]] = [[] for _ in range(classes)]

    def score(self, item: Any) -> float:
        age, doubt = item[2], item[1]
        return 1 / (1 + math.exp(-age / self.capacity)) + doubt / math.log(self.classes)

    def offer(self, image: Any, label: int, doubt: float) -> None:
        new = [image, doubt, 0]
        if len(self.lists[label]) >= self.capacity / self.classes:
            enter = self.drop([label], new)
        elif sum(map(len, self.lists)) < self.capacity:
            enter = True
        else:
            longest = max(map(len, self.lists))
            enter = self.drop(
                [c for c in range(self.classes) if len(self.lists[c]) == longest], new
            )
        if enter:
            self.lists[label].append(new)
        for each in self.lists:
            for item in each:
                item[2] += 1

    def drop(self, classes: list[int], new: Any) -> bool:
        worst, label = max(
            ((item, c) for c in classes for item in self.lists[c]), key=lambda p: self.score(p[0])
        )
        if self.score(worst) <= self.score(new):
            return False
        self.lists[label] = [item for item in self.lists[label] if item is not worst]
        return True

    def items(self) -> list[Any]:
        return sorted((i for each in self.lists for i in each), key=lambda item: -item[2])


@pytest.mark.parametrize(("capacity", "classes"), [(10, 3), (12, 4), (4, 9), (64, 2)])
def test_the_memory_keeps_what_the_published_one_keeps(capacity: int, classes: int) -> None:
    draw = torch.Generator().manual_seed(capacity)
    ours, theirs = CategoryBalancedMemory(capacity=capacity), WrittenOutMemory(capacity, classes)
    kept: list[Kept] = []
    state = MemoryState(draw)
    for i in range(300):
        label = int(torch.randint(0, classes, (), generator=draw)) if i % 100 < 60 else 1
        doubt = float(torch.rand((), generator=draw)) * math.log(classes)
        ours.admit(state, kept, Kept(i, label, doubt), classes=classes)
        for each in kept:
            each.age += 1
        theirs.offer(i, label, doubt)
        expected = [(item[0], item[2]) for item in theirs.items()]
        assert sorted(((k.index, k.age) for k in kept), key=lambda p: -p[1]) == expected
    assert len(kept) <= max(capacity, classes)


def test_a_flood_of_one_class_does_not_wash_out_the_others() -> None:
    memory, kept = CategoryBalancedMemory(capacity=6), list[Kept]()
    for i in range(60):
        label = i % 3 if i < 12 else 2
        memory.admit(MemoryState(torch.Generator()), kept, Kept(i, label, 0.1), classes=3)
        for each in kept:
            each.age += 1
    assert sorted(each.label for each in kept) == [0, 0, 1, 1, 2, 2]
    assert [each.index for each in kept if each.label == 2] == [58, 59]


def learner(model: nn.Module | None = None, **options: Any) -> Learner:
    changes: dict[str, Any] = {"optimizer.lr": LR, "filter.capacity": 10, "teacher.momentum": 0.9}
    changes |= {key.replace("__", "."): value for key, value in options.items()}
    return Learner(bn_net().double() if model is None else model, get_recipe("rotta", changes))


def test_five_steps_equal_plain_pytorch() -> None:
    draw = torch.Generator().manual_seed(0)
    student = robust_net()
    teacher = copy.deepcopy(student)
    affine = [p for p in student.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(affine, lr=LR)
    memory = WrittenOutMemory(10, 5)
    answers = []
    for x in BATCHES:
        with torch.no_grad():
            answer = mode(teacher, False)(x)
            p = answer.softmax(dim=1)
            doubt = -(p * p.log()).sum(dim=1)
            answers.append(answer)
            for image, label, h in zip(x, p.argmax(dim=1), doubt, strict=True):
                memory.offer(image, int(label), float(h))
            items = memory.items()
            remembered = torch.stack([item[0] for item in items])
            ages = torch.tensor([item[2] / 10 for item in items], dtype=torch.float64)
            label = mode(teacher, True)(remembered).softmax(dim=1)
        log_p = mode(student, True)(jittered(remembered, draw)).log_softmax(dim=1)
        timely = (-ages).exp() / (1 + (-ages).exp())
        optimizer.zero_grad()
        (-(label * log_p).sum(dim=1) * timely).mean().backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.copy_(0.9 * slow + 0.1 * fast)

    ours = learner()
    torch.testing.assert_close([ours.step(x).logits for x in BATCHES], answers, atol=1e-8, rtol=0)
    torch.testing.assert_close(list(ours.learning.values()), affine, atol=1e-8, rtol=0)
    assert (ours.learning["1.weight"] - bn_net().double()[1].weight).abs().max() > 1e-3
    running, own = ours.statistics.running, ours.states["teacher"].statistics
    for index in (1, 4):
        torch.testing.assert_close(running[f"{index}.mean"], student[index].mean)
        torch.testing.assert_close(running[f"{index}.var"], student[index].var)
        torch.testing.assert_close(own[f"{index}.mean"], teacher[index].mean)
        torch.testing.assert_close(own[f"{index}.var"], teacher[index].var)
    handed_back = ours.release().eval()
    with torch.no_grad():
        torch.testing.assert_close(handed_back(BATCHES[0]), mode(teacher, False)(BATCHES[0]))


def test_the_prediction_and_one_look_each_at_the_memory() -> None:
    ours = learner()
    for x in BATCHES:
        ours.step(x)
    assert (ours.forwards, ours.backwards) == (5 * 3, 5)


def test_the_memory_fills_over_batches_and_single_images() -> None:
    ours = learner(filter__capacity=20)
    sizes = []
    for x in BATCHES:
        ours.step(x[:1])
        sizes.append(len(ours.states["filter"].images))
    assert sizes[0] == 1
    assert sizes == sorted(sizes)
    assert torch.equal(ours.states["filter"].images[0], BATCHES[0][0])


def test_the_memory_has_one_layout_as_a_checkpoint_has() -> None:
    state = MemoryState(torch.Generator())
    state.keep([Kept(1, 0, 0.0), Kept(0, 0, 0.0)], images(4)[:, :1])
    assert state.images.stride() == torch.zeros(2, 1, 8, 8).stride()
    state.keep([Kept(0, 0, 0.0), Kept(2, 0, 0.0)], images(4)[:, :1].transpose(2, 3))
    assert state.images.stride() == torch.zeros(2, 1, 8, 8).stride()


@pytest.mark.parametrize("recipe", ["rotta", "note"])
@pytest.mark.parametrize("make", [bn_net, gn_net])
def test_an_image_that_is_not_finite_is_not_remembered(
    make: Callable[[], nn.Module], recipe: str
) -> None:
    broken = images(4, seed=1)
    broken[2] = float("nan")
    ours, sound = (Learner(make(), get_recipe(recipe, {"optimizer.lr": LR})) for _ in range(2))
    ours.step(images(4)), sound.step(images(4))
    answer, expected = ours.step(broken).logits, sound.step(broken[[0, 1, 3]]).logits
    assert torch.equal(answer.isfinite().all(dim=1), torch.tensor([True, True, False, True]))
    torch.testing.assert_close(answer[[0, 1, 3]], expected)
    assert torch.equal(ours.states["filter"].images, sound.states["filter"].images)
    torch.testing.assert_close(dict(ours.learning), dict(sound.learning))


@pytest.mark.parametrize("recipe", ["rotta", "note"])
def test_from_an_empty_memory_nothing_is_learnt(recipe: str) -> None:
    ours = Learner(bn_net(), get_recipe(recipe, {"optimizer.lr": LR}))
    assert ours.step(torch.full((2, 3, 8, 8), float("nan"))).loss is None
    assert (ours.forwards, ours.backwards) == (1, 0)
    learnt = {name: p.detach() for name, p in ours.learning.items()}
    assert same_tensors(learnt, ours.source)
    packed = {name: tensor.clone() for name, tensor in ours.state_tensors().items()}
    assert packed["filter/labels"].dtype == torch.int64
    assert torch.isfinite(ours.step(images(4)).loss)
    ours.load_state_tensors(packed)
    assert len(ours.states["filter"].images) == 0
    assert torch.isfinite(ours.step(images(4)).loss)


def test_without_learning_nothing_is_remembered_and_no_statistics_move() -> None:
    ours = learner()
    ours.step(BATCHES[0])
    before = {name: tensor.clone() for name, tensor in ours.state_tensors().items()}
    ours.predict(BATCHES[1])
    assert same_tensors(before, ours.state_tensors())


def test_statistics_settle_on_the_images_before_the_first_step_of_adapt() -> None:
    data = images(40)
    result = acclimate.adapt(
        bn_net(), data, "rotta", batch_size=10, guard="observe", progress=False,
        options={"optimizer.lr": 0.0},
    )  # fmt: skip
    layer = result.model[1]
    with torch.no_grad():
        inside = result.model[0](data)
    assert isinstance(layer, nn.BatchNorm2d)
    torch.testing.assert_close(layer.running_mean, inside.mean(dim=(0, 2, 3)), atol=0.1, rtol=0)
