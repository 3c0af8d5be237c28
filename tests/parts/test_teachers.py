"""Who labels: what each teacher knows, and when it learns of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.parts.base import Step
from acclimate.parts.teachers import MovingAverage
from nets import bn_net, images

X = images(16)


def learner_with(teacher: str, **options: object) -> Learner:
    changes = {f"teacher.{k}": v for k, v in options.items()}
    recipe = get_recipe("soft", {"teacher": teacher, "optimizer.lr": 0.5, **changes})
    learner = Learner(bn_net(), recipe)
    learner.start_epoch()
    return learner


def student_and_teacher(learner: Learner) -> tuple[Tensor, Tensor]:
    step = Step(learner, X)
    return step.student.logits.detach(), step.teacher.logits


def learn(learner: Learner, steps: int = 3) -> None:
    # Another batch than the teacher refers to, so that soft labels have something to say.
    learner.recipe.optimizer.update(learner.states["optimizer"], learner, lambda: _push(learner))
    for seed in range(steps):
        learner.step(images(16, seed=seed + 1))


def _push(learner: Learner) -> Tensor:
    """A gradient that surely moves every parameter, soft self-labels having none at the start."""
    for p in learner.learning.values():
        p.grad = torch.full_like(p, 0.1)
    return torch.zeros(())


def test_all_teachers_start_as_the_student() -> None:
    for name in ("instant", "frozen", "epoch", "moving-average"):
        student, teacher = student_and_teacher(learner_with(name))
        assert torch.equal(student, teacher)


def test_instant_is_the_student_itself() -> None:
    learner = learner_with("instant")
    learn(learner)
    step = Step(learner, X)
    assert step.teacher is step.student


def test_frozen_never_moves() -> None:
    learner = learner_with("frozen")
    _, before = student_and_teacher(learner)
    learn(learner)
    learner.start_epoch()
    student, teacher = student_and_teacher(learner)
    assert torch.equal(teacher, before)
    assert not torch.allclose(student, teacher)


def test_epoch_stays_within_an_epoch_and_catches_up_after_it() -> None:
    learner = learner_with("epoch")
    _, before = student_and_teacher(learner)
    learn(learner)
    student, teacher = student_and_teacher(learner)
    assert torch.equal(teacher, before)
    assert not torch.allclose(student, teacher)
    learner.start_epoch()
    student, teacher = student_and_teacher(learner)
    assert torch.equal(student, teacher)


def test_moving_average_follows_its_recursion() -> None:
    learner = learner_with("moving-average", momentum=0.75)
    average = {n: p.detach().clone() for n, p in learner.learning.items()}
    learner.recipe.optimizer.update(learner.states["optimizer"], learner, lambda: _push(learner))
    for seed in range(4):
        learner.step(images(16, seed=seed))
        for name, p in learner.learning.items():
            average[name] = 0.75 * average[name] + 0.25 * p.detach()
    torch.testing.assert_close(learner.states["teacher"].tensors, average)
    assert (average["1.bias"] - learner.learning["1.bias"].detach()).abs().max() > 1e-4


@pytest.mark.parametrize("momentum", [0.0, 1.0])
def test_moving_average_at_its_ends_is_instant_or_frozen(momentum: float) -> None:
    learner = learner_with("moving-average", momentum=momentum)
    start = {n: p.detach().clone() for n, p in learner.learning.items()}
    learn(learner)
    now = {n: p.detach() for n, p in learner.learning.items()}
    torch.testing.assert_close(learner.states["teacher"].tensors, start if momentum == 1.0 else now)


def test_a_teacher_holds_only_what_learns_and_gives_no_gradient() -> None:
    learner = learner_with("epoch")
    assert learner.states["teacher"].tensors.keys() == learner.learning.keys()
    assert not Step(learner, X).teacher.logits.requires_grad


def test_momentum_out_of_range_is_refused() -> None:
    with pytest.raises(AcclimateError, match=r"expected momentum >= 0 and <= 1, got 1\.5"):
        MovingAverage(momentum=1.5)
