"""Self-ensembling's loss on the target alone, beside the same thing in plain PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.methods.views import moved
from nets import bn_net, images, same_tensors
from plain import plain

LR = 0.01
BATCHES = [images(12, seed=seed).double() for seed in range(4)]
SOME = 0.25
"""A confidence that some images of every batch have, and others not."""


def learner(**options: Any) -> Learner:
    changes: dict[str, Any] = {"optimizer.lr": LR, "objective.confidence": SOME}
    changes |= {key.replace("__", "."): value for key, value in options.items()}
    return Learner(bn_net().double(), get_recipe("self-ensembling", changes))


def written_out(confidence: float, view: Callable[[Tensor, Any], Tensor]) -> Any:
    draw = torch.Generator().manual_seed(0)
    student = plain(bn_net().double())
    teacher = copy.deepcopy(student)
    optimizer = torch.optim.Adam(student.parameters(), lr=LR)
    answers = []
    for x in BATCHES:
        one, other = view(x, draw), view(x, draw)
        with torch.no_grad():
            answers.append(teacher(x))
            q = teacher(other).softmax(dim=1)
        p = student(one).softmax(dim=1)
        counts = (q.max(dim=1).values > confidence).double()
        apart = (((p - q) ** 2).mean(dim=1) * counts).mean()
        even = torch.full((5,), 1 / 5, dtype=torch.float64)
        balance = F.binary_cross_entropy(p.mean(dim=0), even, reduction="sum")
        loss = 3 * (apart + 0.005 * counts.mean() * balance)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.copy_(0.99 * slow + 0.01 * fast)
    return answers, student, teacher


@pytest.mark.parametrize("confidence", [SOME, 0.0])
@pytest.mark.parametrize(
    ("options", "view"),
    [
        ({}, lambda x, draw: moved(x, draw, flip=False, affine=0.0)),
        (
            {"objective__affine": 0.1, "objective__flip": True},
            lambda x, draw: moved(x, draw, flip=True, affine=0.1),
        ),
        ({"objective__pixels": 0}, lambda x, draw: x),
    ],
)
def test_four_steps_equal_plain_pytorch(
    options: dict[str, Any], view: Callable[[Tensor, Any], Tensor], confidence: float
) -> None:
    ours = learner(objective__confidence=confidence, **options)
    answers = [ours.step(x).logits for x in BATCHES]
    expected, student, teacher = written_out(confidence, view)
    torch.testing.assert_close(answers, expected, atol=1e-7, rtol=0)
    parameters = dict(student.named_parameters())
    torch.testing.assert_close(dict(ours.learning), parameters, atol=1e-7, rtol=0)
    slow = {name: p.detach() for name, p in teacher.named_parameters()}
    torch.testing.assert_close(ours.states["teacher"].tensors, slow, atol=1e-7, rtol=0)
    assert (parameters["0.weight"] - bn_net().double()[0].weight).abs().max() > 1e-3
    handed_back = {name: p.detach() for name, p in ours.release().named_parameters()}
    assert same_tensors(handed_back, ours.states["teacher"].tensors)


def test_the_prediction_and_one_look_each_for_student_and_teacher() -> None:
    ours = learner()
    for x in BATCHES:
        ours.step(x)
    assert (ours.forwards, ours.backwards) == (4 * 3, 4)


def test_without_augmentation_the_prediction_is_the_teachers_look() -> None:
    ours = learner(objective__pixels=0)
    for x in BATCHES:
        ours.step(x)
    assert (ours.forwards, ours.backwards) == (4 * 2, 4)


def test_nobody_sure_means_no_student_no_backward_and_no_move() -> None:
    ours = learner(objective__confidence=0.99)
    before = {name: p.detach().clone() for name, p in ours.learning.items()}
    assert ours.step(BATCHES[0]).loss is None
    assert (ours.forwards, ours.backwards) == (2, 0)
    assert same_tensors(before, {name: p.detach() for name, p in ours.learning.items()})
