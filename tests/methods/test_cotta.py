"""CoTTA, beside the same thing written out in plain PyTorch."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.methods.views import generator_on, jittered
from nets import bn_net, gn_net, images, same_tensors
from plain import copied, plain

LR = 0.2
FEW = {"teacher.views_per_image": 2, "optimizer.lr": LR}
BETWEEN = 0.2535
"""The source is more confident than that about some batches, and less about others."""
BATCHES = [images(12, seed=seed).double() for seed in range(4)]


def learner(model: nn.Module | None = None, **options: Any) -> Learner:
    changes = {**FEW, **{key.replace("__", "."): value for key, value in options.items()}}
    return Learner(bn_net().double() if model is None else model, get_recipe("cotta", changes))


def written_out(threshold: float, momentum: float, restored: float) -> tuple[list[Any], nn.Module]:
    """Four steps; the draws are those of a learner with the seed 0, in its order."""
    draw = torch.Generator().manual_seed(0)
    student = plain(bn_net().double())
    source, teacher = copy.deepcopy(student), copy.deepcopy(student)
    optimizer = torch.optim.SGD(student.parameters(), lr=LR, momentum=0.9, nesterov=True)
    answers = []
    for x in BATCHES:
        with torch.no_grad():
            unsure = source(x).softmax(dim=1).amax(dim=1).mean() < threshold
            label = teacher(x).softmax(dim=1)
            if unsure:
                views = [teacher(jittered(x, draw)) for _ in range(2)]
                label = ((views[0] + views[1]) / 2).softmax(dim=1)
        answers.append(label)
        optimizer.zero_grad()
        (-(label * student(x).log_softmax(dim=1)).sum() / len(x)).backward()
        optimizer.step()
        with torch.no_grad():
            for p, slow in zip(student.parameters(), teacher.parameters(), strict=True):
                slow.copy_(momentum * slow + (1 - momentum) * p)
            masks = generator_on(torch.device("cpu"), seeded_by=draw)
            for p, start in zip(student.parameters(), source.parameters(), strict=True):
                mask = torch.rand(p.shape, generator=masks) < restored
                p[mask] = start[mask]
    return answers, student


@pytest.mark.parametrize("threshold", [0.0, BETWEEN, 1.0])
def test_four_steps_equal_plain_pytorch(threshold: float) -> None:
    ours = learner(
        teacher__threshold=threshold, teacher__momentum=0.9, regularizer__probability=0.2
    )
    answers = [ours.step(x).logits.softmax(dim=1) for x in BATCHES]
    expected, student = written_out(threshold, 0.9, 0.2)
    torch.testing.assert_close(answers, expected, atol=1e-9, rtol=0)
    parameters = dict(student.named_parameters())
    torch.testing.assert_close(dict(ours.learning), parameters, atol=1e-9, rtol=0)
    if threshold:  # a sure source leaves teacher and student one, and then there is no gradient
        assert (parameters["0.weight"] - bn_net().double()[0].weight).abs().max() > 1e-3


def test_of_some_batches_the_source_is_confident_at_the_threshold_between() -> None:
    ours = learner()
    seen = [ours.forward(x, learning=False).logits.softmax(dim=1).amax(dim=1) for x in BATCHES]
    assert 0 < sum(bool(each.mean() >= BETWEEN) for each in seen) < len(BATCHES)
    assert all(0 < int((each >= BETWEEN).sum()) < len(each) for each in seen)


@pytest.mark.parametrize(
    ("threshold", "forwards"),
    [(0.0, 3), (1.0, 4)],  # source and student; the teacher's own look; two views
)
def test_only_passes_whose_prediction_is_used_are_made(threshold: float, forwards: int) -> None:
    ours = learner(teacher__threshold=threshold)
    for x in BATCHES:
        ours.step(x)
    assert (ours.forwards, ours.backwards) == (4 * forwards, 4)


def test_thirty_four_passes_at_most() -> None:
    ours = Learner(bn_net(), get_recipe("cotta", {"teacher.threshold": 1.0}))
    ours.step(images(12))
    assert ours.forwards == 1 + 1 + 32


def test_without_learning_the_teacher_looks_once_and_draws_nothing() -> None:
    ours = learner()
    ours.step(BATCHES[0])
    before, passes = copied(ours), ours.forwards
    answer = ours.predict(BATCHES[1])
    assert ours.forwards == passes + 1
    assert same_tensors(before, copied(ours))
    with torch.no_grad():
        expected = ours.forward(
            BATCHES[1], weights=ours.states["teacher"].tensors, learning=False
        ).logits
    torch.testing.assert_close(answer, expected)


def test_every_parameter_learns_and_the_teacher_is_returned() -> None:
    ours = learner(regularizer__probability=0)
    for x in BATCHES:
        ours.step(x)
    assert set(ours.learning) == {name for name, _ in ours.model.named_parameters()}
    teacher = {k: v.clone() for k, v in ours.states["teacher"].tensors.items()}
    assert not same_tensors(teacher, {k: p.detach() for k, p in ours.learning.items()})
    handed_back = dict(ours.release().named_parameters())
    assert same_tensors(teacher, {k: p.detach() for k, p in handed_back.items()})


def test_the_share_of_weights_that_go_back_is_the_probability() -> None:
    ours = learner(regularizer__probability=0.1)
    ours.step(BATCHES[0])
    same = [(p == ours.source[name]).double().flatten() for name, p in ours.learning.items()]
    assert 0.06 < float(torch.cat(same).mean()) < 0.15


def test_a_single_image() -> None:
    one = learner(gn_net(), teacher__threshold=1.0)
    assert torch.isfinite(one.step(images(1)).logits).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AcclimateWarning)
        assert torch.isfinite(learner().step(images(1).double()).logits).all()


def test_views_stay_near_the_image_whatever_its_scale_and_shape() -> None:
    x = images(64)[:, :, :, :6]
    view = jittered(x, torch.Generator().manual_seed(0))
    assert view.shape == x.shape
    big = jittered(1000 * x + 5000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(big, 1000 * view + 5000, atol=0.5, rtol=1e-4)
    assert 0.3 < float(view.std() / x.std()) < 1.3


def test_an_image_is_turned_in_pixels() -> None:
    flat = torch.zeros(200, 1, 16, 48)
    flat[:, :, 7:9] = 1.0  # a bar across; turned by an angle a, its slope is tan a
    view = jittered(flat, torch.Generator().manual_seed(3))
    rows = torch.arange(16.0)[:, None]
    left, right = (
        (view[:, 0, :, at].clamp_min(0) ** 4 * rows.T).sum(dim=1)
        / (view[:, 0, :, at].clamp_min(0) ** 4).sum(dim=1)
        for at in (16, 32)
    )
    steepest = ((left - right).abs() / 16).quantile(0.95)
    assert 0.1 < float(steepest) < 0.4  # tan 15 degrees is 0.27


def test_what_learns_nothing_has_no_teacher_to_predict_with() -> None:
    with pytest.raises(AcclimateError, match="the recipe learns nothing, so it has no teacher"):
        Learner(bn_net(), get_recipe("bn", {"predictor": "teacher"}))


def test_the_teacher_may_predict_for_other_recipes_too() -> None:
    ours = Learner(bn_net(), get_recipe("ent", {"predictor": "teacher"}))
    expected = Learner(bn_net(), get_recipe("ent"))
    assert torch.equal(ours.step(images()).logits, expected.step(images()).logits)
    assert ours.forwards == 1
    student = {name: p.detach().clone() for name, p in ours.learning.items()}
    now: dict[str, Tensor] = dict(ours.release().named_parameters())
    assert all(torch.equal(now[name], p) for name, p in student.items())
