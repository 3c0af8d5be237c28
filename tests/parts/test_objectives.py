"""What is minimised, against closed forms, autograd and properties that must hold."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.parts.objectives import (
    CrossEntropy,
    GeneralizedCrossEntropy,
    entropy,
    generalized_cross_entropy,
    tempered_cross_entropy,
)

finite = st.floats(-30, 30, allow_nan=False, width=32)
temperature = st.floats(0.05, 10)
quick = settings(max_examples=40, deadline=None)


@st.composite
def logits(draw: st.DrawFn, *, classes: int | None = None) -> Tensor:
    """A batch of one to four rows, in double precision."""
    c = classes or draw(st.integers(1, 6))
    n = draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(finite, min_size=c, max_size=c), min_size=n, max_size=n))
    return torch.tensor(rows, dtype=torch.float64)


def random_logits(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(*shape, generator=draw, dtype=torch.float64)
    return z.requires_grad_(grad)


# Closed forms


def test_entropy_of_a_fair_coin_and_of_a_biased_one() -> None:
    p = torch.tensor([[0.5, 0.5], [0.9, 0.1]], dtype=torch.float64)
    biased = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    expected = torch.tensor([math.log(2), biased], dtype=torch.float64)
    torch.testing.assert_close(entropy(p.log()), expected)


def test_cross_entropy_of_known_distributions() -> None:
    teacher, student = torch.tensor([[0.7, 0.3]]), torch.tensor([[0.2, 0.8]])
    expected = torch.tensor([-(0.7 * math.log(0.2) + 0.3 * math.log(0.8))])
    torch.testing.assert_close(tempered_cross_entropy(student.log(), teacher.log()), expected)


def test_temperatures_divide_the_logits() -> None:
    s, t = random_logits(3, 4), random_logits(3, 4, seed=1)
    tempered = tempered_cross_entropy(s, t, student_temperature=0.5, teacher_temperature=3.0)
    torch.testing.assert_close(tempered, tempered_cross_entropy(s / 0.5, t / 3.0))


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8, 1.0])
def test_generalized_cross_entropy_is_its_formula(q: float) -> None:
    z, labels = random_logits(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    p = z.softmax(dim=1)[torch.arange(6), labels]
    torch.testing.assert_close(generalized_cross_entropy(z, labels, q=q), (1 - p**q) / q)


# Corners of the unified form


def test_hard_labels_are_the_limit_of_a_cold_teacher() -> None:
    s, t = random_logits(8, 5), random_logits(8, 5, seed=1)
    hard = tempered_cross_entropy(s, t, teacher_temperature=0.0)
    cold = tempered_cross_entropy(s, t, teacher_temperature=1e-4)
    torch.testing.assert_close(hard, cold)
    torch.testing.assert_close(hard, F.cross_entropy(s, t.argmax(dim=1), reduction="none"))


def test_soft_labels_at_temperature_one_are_torchs_cross_entropy() -> None:
    s, t = random_logits(8, 5), random_logits(8, 5, seed=1)
    expected = F.cross_entropy(s, t.softmax(dim=1), reduction="none")
    torch.testing.assert_close(tempered_cross_entropy(s, t), expected)


def test_without_stop_gradient_it_is_entropy_with_entropys_gradient() -> None:
    z = random_logits(8, 5, grad=True)
    p = z.softmax(dim=1)
    plain = -(p * p.log()).sum(dim=1)
    unified = tempered_cross_entropy(z, z)
    torch.testing.assert_close(unified, plain)
    ours, theirs = (torch.autograd.grad(x.sum(), z)[0] for x in (unified, plain))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("tau_s", "tau_t"), [(1.0, 1.0), (0.5, 0.5), (0.5, 2.0)])
def test_gradients_flow_through_both_sides_of_a_shared_tensor(tau_s: float, tau_t: float) -> None:
    z = random_logits(4, 5, grad=True)
    unified = tempered_cross_entropy(
        z, z, student_temperature=tau_s, teacher_temperature=tau_t
    ).sum()
    plain = -((z / tau_t).softmax(dim=1) * (z / tau_s).log_softmax(dim=1)).sum()
    ours, theirs = (torch.autograd.grad(x, z)[0] for x in (unified, plain))
    torch.testing.assert_close(ours, theirs)


def test_stop_gradient_stops_the_teachers_share_only() -> None:
    z = random_logits(4, 5, grad=True)
    (stopped,) = torch.autograd.grad(tempered_cross_entropy(z, z.detach()).sum(), z)
    (free,) = torch.autograd.grad(tempered_cross_entropy(z, z).sum(), z)
    torch.testing.assert_close(stopped, torch.zeros_like(z), atol=1e-12, rtol=0)  # p - p
    assert free.abs().max() > 0.01


def test_a_hard_teacher_gets_no_gradient() -> None:
    s, t = random_logits(4, 5, grad=True), random_logits(4, 5, seed=1, grad=True)
    loss = tempered_cross_entropy(s, t, teacher_temperature=0.0).sum()
    gradients = torch.autograd.grad(loss, [s, t], allow_unused=True)
    assert gradients[0] is not None
    assert gradients[1] is None


@pytest.mark.parametrize("q", [1e-3, 1e-6, 1e-9])
def test_generalized_cross_entropy_tends_to_hard_labels(q: float) -> None:
    z, labels = random_logits(8, 5, grad=True), torch.arange(8) % 5
    near, hard = generalized_cross_entropy(z, labels, q=q), F.cross_entropy(z, labels)
    scale = 1e2 * q + 1e-7
    torch.testing.assert_close(near.mean(), hard, atol=scale, rtol=scale)
    ours, theirs = (torch.autograd.grad(x, z)[0] for x in (near.mean(), hard))
    torch.testing.assert_close(ours, theirs, atol=scale, rtol=scale)


def test_generalized_cross_entropy_keeps_its_digits_at_tiny_q_in_single_precision() -> None:
    z, labels = random_logits(8, 5).float(), torch.arange(8) % 5
    near = generalized_cross_entropy(z, labels, q=1e-6).mean()
    torch.testing.assert_close(near, F.cross_entropy(z, labels), atol=1e-4, rtol=1e-4)


def test_generalized_cross_entropy_at_one_is_half_the_absolute_error() -> None:
    z, labels = random_logits(8, 5), torch.arange(8) % 5
    p = z.softmax(dim=1)
    absolute = (p - F.one_hot(labels, 5)).abs().sum(dim=1)
    at_one = generalized_cross_entropy(z, labels, q=1.0)
    torch.testing.assert_close(at_one, absolute / 2)
    torch.testing.assert_close(at_one, 1 - p[torch.arange(8), labels])


# Autograd


@pytest.mark.parametrize("tau_t", [0.0, 0.5, 1.0])
def test_gradcheck_of_the_unified_form(tau_t: float) -> None:
    s, t = random_logits(3, 4, grad=True), random_logits(3, 4, seed=1)

    def loss(z: Tensor) -> Tensor:
        return tempered_cross_entropy(z, t, student_temperature=0.7, teacher_temperature=tau_t)

    assert torch.autograd.gradcheck(loss, s)


def test_gradcheck_of_entropy() -> None:
    assert torch.autograd.gradcheck(entropy, random_logits(3, 4, grad=True))


@pytest.mark.parametrize("q", [0.05, 0.8, 1.0])
def test_gradcheck_of_generalized_cross_entropy(q: float) -> None:
    labels = torch.tensor([0, 3, 1])

    def loss(z: Tensor) -> Tensor:
        return generalized_cross_entropy(z, labels, q=q)

    assert torch.autograd.gradcheck(loss, random_logits(3, 4, grad=True))


# Properties


@quick
@given(z=logits())
def test_entropy_lies_between_zero_and_log_of_the_classes(z: Tensor) -> None:
    h = entropy(z)
    assert (h >= -1e-12).all()
    assert (h <= math.log(z.shape[1]) + 1e-9).all()


@quick
@given(s=logits(classes=4), t=logits(classes=4), tau_s=temperature, tau_t=temperature)
def test_cross_entropy_is_at_least_the_teachers_entropy(
    s: Tensor, t: Tensor, tau_s: float, tau_t: float
) -> None:
    n = min(len(s), len(t))
    loss = tempered_cross_entropy(
        s[:n], t[:n], student_temperature=tau_s, teacher_temperature=tau_t
    )
    assert (loss >= entropy(t[:n] / tau_t) - 1e-9).all()


@quick
@given(z=logits(), q=st.floats(1e-6, 1.0), data=st.data())
def test_generalized_cross_entropy_lies_between_zero_and_one_over_q_and_below_hard(
    z: Tensor, q: float, data: st.DataObject
) -> None:
    classes = st.integers(0, z.shape[1] - 1)
    labels = torch.tensor(data.draw(st.lists(classes, min_size=len(z), max_size=len(z))))
    loss = generalized_cross_entropy(z, labels, q=q)
    assert (loss >= 0).all()
    assert (loss <= 1 / q + 1e-9).all()
    assert (loss <= F.cross_entropy(z, labels, reduction="none") + 1e-9).all()


@quick
@given(z=logits(), shift=finite, q=st.floats(0.01, 1.0))
def test_adding_a_constant_to_all_logits_changes_nothing(z: Tensor, shift: float, q: float) -> None:
    close = {"atol": 1e-9, "rtol": 1e-9}
    top = z.argmax(dim=1)
    torch.testing.assert_close(entropy(z + shift), entropy(z), **close)
    torch.testing.assert_close(
        generalized_cross_entropy(z + shift, top, q=q),
        generalized_cross_entropy(z, top, q=q),
        **close,
    )
    torch.testing.assert_close(
        tempered_cross_entropy(z + shift, z, teacher_temperature=0.5),
        tempered_cross_entropy(z, z + shift, teacher_temperature=0.5),
        **close,
    )


@quick
@given(z=logits(), data=st.data())
def test_classes_and_images_may_be_renumbered(z: Tensor, data: st.DataObject) -> None:
    columns = torch.tensor(data.draw(st.permutations(range(z.shape[1]))))
    rows = torch.tensor(data.draw(st.permutations(range(len(z)))))
    moved = z[rows][:, columns]
    torch.testing.assert_close(entropy(moved), entropy(z)[rows])
    loss = tempered_cross_entropy(moved, moved.flip(0), teacher_temperature=2.0)
    original = tempered_cross_entropy(z[rows], z[rows].flip(0), teacher_temperature=2.0)
    torch.testing.assert_close(loss, original)


@pytest.mark.parametrize("size", [1e4, 1e20, 1e30])
@pytest.mark.parametrize("tau_t", [0.0, 0.1, 1.0])
def test_extreme_logits_give_finite_losses_and_gradients(size: float, tau_t: float) -> None:
    z = torch.tensor([[size, 0.0, -size], [-size, -size, -size]], requires_grad=True)
    worst = torch.tensor([2, 0])
    losses = [
        entropy(z),
        tempered_cross_entropy(z, z.flip(1).detach(), teacher_temperature=tau_t),
        generalized_cross_entropy(z, worst, q=0.8),
        generalized_cross_entropy(z, worst, q=1.0),
    ]
    for loss in losses:
        assert torch.isfinite(loss).all()
        (gradient,) = torch.autograd.grad(loss.sum(), z)
        assert torch.isfinite(gradient).all()


def test_one_class_has_nothing_to_learn() -> None:
    z = torch.tensor([[3.0], [-2.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(entropy(z).sum(), z)
    assert entropy(z).tolist() == [0, 0]
    assert gradient.abs().max() == 0


# Options


@pytest.mark.parametrize("q", [0.0, -0.1, 1.1, math.nan, math.inf])
def test_q_out_of_range_is_refused_with_the_range(q: float) -> None:
    with pytest.raises(AcclimateError, match=r"expected q > 0 and <= 1, got"):
        GeneralizedCrossEntropy(q=q)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_student_temperature_must_be_positive(value: float) -> None:
    with pytest.raises(AcclimateError, match=r"expected student_temperature > 0, got"):
        CrossEntropy(student_temperature=value)


@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_teacher_temperature_must_not_be_negative(value: float) -> None:
    with pytest.raises(AcclimateError, match=r"expected teacher_temperature >= 0, got"):
        CrossEntropy(teacher_temperature=value)
