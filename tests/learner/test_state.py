"""What parts remember, as flat tensors, and learners that go on from them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from acclimate.learner.learner import Learner
from acclimate.learner.state import pack, transform, unpack
from acclimate.methods.registry import get_recipe
from acclimate.parts.teachers import TeacherWeights
from nets import bn_net, images, same_tensors, tiny_vit


@dataclass
class Everything:
    tensor: Tensor = field(default_factory=lambda: torch.zeros(2))
    tensors: dict[str, Tensor] = field(default_factory=dict)
    module: nn.Module = field(default_factory=lambda: nn.Linear(2, 2))
    generator: torch.Generator = field(default_factory=torch.Generator)
    count: int = 0
    rate: float = 0.0
    on: bool = False
    _handle: object = None


def test_a_state_of_everything_goes_round() -> None:
    torch.manual_seed(0)
    state = Everything(
        tensor=torch.rand(3),
        tensors={"a.b": torch.rand(2), "c": torch.arange(3)},
        count=7,
        rate=0.1,
        on=True,
        _handle=object(),
    )
    state.generator.manual_seed(5)
    packed = {k: v.clone() for k, v in pack(state).items()}
    assert all(isinstance(v, Tensor) for v in packed.values())
    other = Everything()
    unpack(other, packed)
    assert same_tensors(pack(other), packed)
    assert (other.count, other.rate, other.on) == (7, 0.1, True)
    assert [type(x) for x in (other.count, other.rate, other.on)] == [int, float, bool]
    draws = [torch.rand(3, generator=s.generator) for s in (state, other)]
    assert torch.equal(*draws)
    assert other._handle is None


def test_what_was_restored_is_a_copy() -> None:
    state, other = Everything(tensors={"a": torch.zeros(2)}), Everything()
    unpack(other, pack(state))
    other.tensors["a"] += 1
    other.tensor += 1
    assert state.tensors["a"].sum() == 0
    assert state.tensor.sum() == 0


def test_known_entries_keep_their_precision() -> None:
    state = TeacherWeights({"a": torch.zeros(2, dtype=torch.float64)})
    unpack(state, {"tensors.a": torch.ones(2)})
    assert torch.equal(state.tensors["a"], torch.ones(2, dtype=torch.float64))


def test_no_state_is_no_tensors() -> None:
    assert pack(None) == {}
    unpack(None, {})


def test_a_state_that_no_checkpoint_can_hold_is_refused() -> None:
    @dataclass
    class Queue:
        rows: list[Tensor]

    with pytest.raises(TypeError, match=r"Queue\.rows is a list, which no checkpoint can hold"):
        pack(Queue([torch.zeros(1)]))
    with pytest.raises(TypeError, match="must be a dataclass or None, got dict"):
        pack({"a": torch.zeros(1)})


def make_optimizer(kind: str, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if kind == "adamw":
        return torch.optim.AdamW(parameters, lr=0.1)
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9 if kind == "momentum" else 0.0)


@pytest.mark.parametrize("kind", ["momentum", "plain", "adamw"])
def test_an_optimiser_goes_on_bit_by_bit(kind: str) -> None:
    def push(p: nn.Parameter, optimizer: torch.optim.Optimizer, i: int) -> None:
        p.grad = torch.sin(p.detach() + i)
        optimizer.step()

    p = nn.Parameter(torch.linspace(-1, 1, 5))
    optimizer = make_optimizer(kind, [p])
    for i in range(3):
        push(p, optimizer, i)
    twin = nn.Parameter(p.detach().clone())
    other = make_optimizer(kind, [twin])
    unpack(other, {k: v.clone() for k, v in pack(optimizer).items()})
    for i in range(3):
        push(p, optimizer, i)
        push(twin, other, i)
    assert torch.equal(p, twin)


def test_transform_reaches_every_tensor() -> None:
    state = Everything(tensors={"a": torch.zeros(2)})
    transform(state, lambda t: t.double() if t.is_floating_point() else t)
    floats = [v for v in pack(state).values() if v.is_floating_point()]
    assert len(floats) == 5
    assert {v.dtype for v in floats} == {torch.float64}


SMALL_DINO = {
    "objective.hidden": 8,
    "objective.bottleneck": 4,
    "objective.prototypes": 16,
    "objective.local_crops": 1,
}
CASES: list[tuple[str, dict[str, Any]]] = [
    *[(name, {}) for name in ("none", "bn", "bn-prior", "ent", "hard", "soft", "rpl", "rpl-epoch")],
    ("ent", {"optimizer": "adam"}),
    ("ent", {"normalization": "running"}),
    ("hard", {"teacher": "moving-average", "teacher.momentum": 0.5}),
    ("hard", {"teacher": "frozen", "filter": "confidence", "filter.threshold": 0.26}),
    ("dino", SMALL_DINO),
    ("dino", {**SMALL_DINO, "selector": "adapters", "selector.width": 2}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_learner_goes_on_bit_by_bit(name: str, options: dict[str, Any]) -> None:
    size = 16 if name == "dino" else 8
    source = tiny_vit() if name == "dino" else bn_net()
    recipe = get_recipe(name, {"optimizer.lr": 0.02, **options})
    first = Learner(copy.deepcopy(source), recipe, seed=1)
    first.start_epoch()
    for seed in range(2):
        first.step(images(6, size=size, seed=seed))
    stored = {k: v.clone() for k, v in first.state_tensors().items()}
    second = Learner(copy.deepcopy(source), recipe, seed=2)
    second.load_state_tensors(stored)
    for seed in range(2, 5):
        x = images(6, size=size, seed=seed)
        a, b = first.step(x), second.step(x)
        assert torch.equal(a.logits, b.logits)
        assert (a.loss is None) == (b.loss is None)
        assert a.loss is None or b.loss is None or torch.equal(a.loss, b.loss)
    assert same_tensors(first.state_tensors(), second.state_tensors())
    assert first.steps == second.steps == 5
    if recipe.learns and name != "soft":
        learnt = {k: v for k, v in first.state_tensors().items() if k.startswith("learning/")}
        assert not same_tensors(learnt, {k: stored[k] for k in learnt})


def test_without_the_optimiser_its_moments_start_anew() -> None:
    learner = Learner(bn_net(), get_recipe("ent"))
    learner.step(images(8))
    light = learner.state_tensors(optimizer=False)
    assert not [k for k in light if k.startswith("optimizer/")]
    learner.load_state_tensors({k: v.clone() for k, v in light.items()})
    assert not learner.states["optimizer"].state


def test_a_teachers_weights_are_put_back_where_they_lie() -> None:
    learner = Learner(bn_net(), get_recipe("soft", {"teacher": "moving-average"}))
    start, held = learner.snapshot(), dict(learner.states["teacher"].tensors)
    learner.step(images())
    learner.load_state_tensors(start)
    for name, tensor in learner.states["teacher"].tensors.items():
        assert tensor is held[name]
        assert torch.equal(tensor, start[f"teacher/tensors.{name}"])
