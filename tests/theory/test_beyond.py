"""Beyond the paper: many points, many classes, robust pseudo-labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from acclimate.errors import AcclimateError
from acclimate.theory import bound_on_student, will_collapse
from acclimate.theory import point as one
from acclimate.theory.boundary import claimed_columns, deviation, run_grid
from acclimate.theory.many_points import equivalent_teacher, simulate_points, slope
from acclimate.theory.settings import BOUNDARY

QS = pytest.mark.parametrize("q", [0.0, 0.3, 0.8, 1.0])


def data(points=30, classes=4, shift=0.0):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(points, 4))
    x[:, 0] += shift
    return x, 0.1 * rng.normal(size=(classes, 4))


@QS
@pytest.mark.parametrize("stop_gradient", [True, False])
@pytest.mark.parametrize("tau_t", [0.7, 0.0])
def test_slope_is_the_gradient(q, stop_gradient, tau_t):
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits.requires_grad_()
    teacher = logits.detach() if stop_gradient else logits
    if tau_t == 0:
        label = F.one_hot(teacher.argmax(dim=0), 5).T.double()
    else:
        label = F.softmax(teacher / tau_t, dim=0)
    log_p = F.log_softmax(logits / 0.4, dim=0)
    losses = -log_p if q == 0 else -torch.expm1(q * log_p) / q
    (label * losses).sum().backward()
    bt = np.array(1 / tau_t if tau_t else 1e200)
    z = logits.detach().numpy()
    ours = slope(z, np.array(1 / 0.4), bt, stop_gradient=stop_gradient, q=q)
    np.testing.assert_allclose(ours, -logits.grad.numpy(), atol=1e-12)


@QS
@pytest.mark.parametrize("classes", [2, 5])
def test_the_slope_at_zero_has_one_line(q, classes):
    """C^-q (1/τt - (1 - q)/τs) / (C τs), twice 1/τt without stop-gradient."""
    z = 1e-6 * np.random.default_rng(0).normal(size=(classes, 3))
    z -= z.mean(axis=0)
    for stop_gradient, twice in ((True, 1), (False, 2)):
        ours = slope(z, np.array(1 / 0.4), np.array(1 / 0.9), stop_gradient=stop_gradient, q=q)
        rate = classes**-q * (twice / 0.9 - (1 - q) / 0.4) / (classes * 0.4)
        np.testing.assert_allclose(ours, rate * z, rtol=1e-4, atol=1e-11)


@pytest.mark.parametrize("q", [0.0, 0.8])
@pytest.mark.parametrize("stop_gradient", [True, False])
def test_many_points_keep_the_line(q, stop_gradient):
    x, w = data()
    t = np.geomspace(0.3, 3, 8)
    options = {"stop_gradient": stop_gradient, "q": q}
    run = simulate_points(x, w, t[:, None], t, lr=0.2, steps=800, **options)
    cells = np.log(t[:, None] / t / bound_on_student(**options)) / np.log(t[1] / t[0])
    clear = np.abs(cells) > 0.5  # nearer to the line it takes longer
    np.testing.assert_array_equal(run.collapsed[clear], cells[clear] < 0)


def test_above_the_line_all_points_may_still_end_in_one_class():
    """What Proposition 1 does not speak of."""
    x, w = data(shift=5.0)
    run = simulate_points(x, w, 1.0, 0.0, stop_gradient=True)
    assert not run.collapsed
    assert run.classes == 1
    x, w = data()
    assert simulate_points(x, w, 1.0, 0.0, stop_gradient=True).classes == 4


@pytest.mark.parametrize("q", [0.3, 0.8])
def test_robust_labels_follow_their_line(q):
    settings = replace(BOUNDARY, low=1.0, high=20.0, count=20, steps=10_000)
    claimed = claimed_columns(settings, stop_gradient=True, q=q)
    assert claimed.sum() >= 5
    run = run_grid(settings, stop_gradient=True, q=q)
    cells = deviation(run.collapsed, settings, stop_gradient=True, q=q)
    assert np.abs(cells[claimed]).max() <= 1


@QS
def test_robust_labels_are_cross_entropy_of_a_sharper_teacher(q):
    y, tau_s, tau_t = np.linspace(-3, 3, 13), 0.6, 1.7
    sharper = equivalent_teacher(tau_s, tau_t, q=q)
    robust = one.student_slope(y / tau_s, y / tau_t, q=q)
    plain = one.student_slope(y / tau_s, y / sharper)
    np.testing.assert_array_equal(np.sign(np.round(robust, 12)), np.sign(np.round(plain, 12)))
    weight = robust[y != 0] / plain[y != 0]
    assert ((weight > 0) & (weight <= 1 + 1e-9)).all()
    assert bool(will_collapse(tau_s, tau_t, True, q=q)) is bool(
        will_collapse(tau_s, float(sharper), True)
    )


def test_the_rule_for_robust_labels():
    assert not will_collapse(1.0, 0.0, True, q=0.8)  # the paper's: hard labels
    assert not will_collapse(0.01, 100.0, True, q=1.0)
    found = will_collapse(0.1, 1.0, True, q=0.8)
    assert "need τs > (1 - q) τt: τs = 0.1 is below (1 - q) τt = 0.2" in found.reason
    assert will_collapse(0.1, 1.0, True, q=None).reason == will_collapse(0.1, 1.0, True).reason
    for wrong in (-0.1, 1.1):
        with pytest.raises(AcclimateError, match="q in"):
            will_collapse(1.0, 1.0, True, q=wrong)
        with pytest.raises(AcclimateError, match="q in"):
            equivalent_teacher(1.0, 1.0, q=wrong)


def test_wrong_shapes_are_refused():
    with pytest.raises(AcclimateError, match=r"points \(N, d\)"):
        simulate_points(np.ones((3, 2)), np.ones((2, 3)), 1.0, 1.0, stop_gradient=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"lr": -1.0}, "lr > 0"), ({"steps": 0}, "steps >= 1"), ({"q": 3.0}, "q in")],
)
def test_impossible_runs_are_refused(options, words):
    with pytest.raises(AcclimateError, match=words):
        simulate_points(np.eye(2), np.eye(2), 1.0, 1.0, stop_gradient=True, **options)
