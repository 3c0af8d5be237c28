"""Closed forms against autograd and a numeric Jacobian; what the paper prints, where it differs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import printed
from acclimate.errors import AcclimateError
from acclimate.theory.continuous import weight_loss, weight_velocity, weight_velocity_stop_gradient
from acclimate.theory.two_point import TwoPoint

temperature = st.floats(0.05, 10)
norm = st.floats(0.3, 3)
output = st.floats(-2, 2)
exponent = st.sampled_from([0.0, 0.3, 0.8, 1.0])


@st.composite
def models(draw, *, stop_gradient=None, q=exponent):
    norms = (draw(norm), draw(norm))
    return TwoPoint(
        tau_s=draw(temperature),
        tau_t=draw(temperature),
        stop_gradient=draw(st.booleans()) if stop_gradient is None else stop_gradient,
        alpha=draw(st.floats(0.1, 10)),
        norms=norms,
        overlap=draw(st.floats(-0.95, 0.95)) * norms[0] * norms[1],
        q=draw(q),
    )


def two_points(model: TwoPoint) -> np.ndarray:
    """Points in the plane with these norms and this overlap."""
    (k, l_), o = model.norms, model.overlap
    return np.array([[k, 0.0], [o / k, np.sqrt(l_**2 - (o / k) ** 2)]])


def torch_loss(model: TwoPoint, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Σ ℓ as ``eq:lossunified`` has it, with its minus inside ℓ."""
    total = torch.zeros((), dtype=torch.float64)
    for sign in (1, -1):
        log_p = F.logsigmoid(sign * student / model.tau_s)
        value = log_p if model.q == 0 else torch.expm1(model.q * log_p) / model.q
        total = total - (torch.sigmoid(sign * teacher / model.tau_t) * value).sum()
    return total


@settings(max_examples=60, deadline=None)
@given(models(), st.tuples(output, output, output, output))
def test_velocity_is_the_gradient_of_the_loss(model, outputs):
    """In weight space and in the two outputs, by autograd."""
    x = two_points(model)
    w_s, w_t = np.linalg.solve(x, outputs[:2]), np.linalg.solve(x, outputs[2:])
    student = torch.tensor(w_s, requires_grad=True)
    points = torch.tensor(x)
    y = points @ student
    if model.stop_gradient:
        value = torch_loss(model, y, points @ torch.tensor(w_t))
    else:
        value = torch_loss(model, y, y)
    value.backward()
    pull = -student.grad.numpy()
    options = {"tau_s": model.tau_s, "tau_t": model.tau_t, "q": model.q}
    scale = 1e-9 + 1e-9 * np.abs(pull).max()
    if model.stop_gradient:
        state = np.array(outputs)
        ours, follow = weight_velocity_stop_gradient(x, w_s, w_t, alpha=model.alpha, **options)
        np.testing.assert_allclose(follow, model.alpha * (w_s - w_t))
        np.testing.assert_allclose(
            model.velocity(state)[2:], x @ follow, rtol=1e-6, atol=1e-9 * model.alpha
        )
        assert weight_loss(x, w_s, w_t, **options) == pytest.approx(value.item())
    else:
        state = np.array(outputs[:2])
        ours = weight_velocity(x, w_s, **options)
        assert weight_loss(x, w_s, w_s, **options) == pytest.approx(value.item())
    np.testing.assert_allclose(ours, pull, rtol=1e-6, atol=scale)
    size = np.abs(model.gram).sum() * 1e-9 * (1 + np.abs(pull).max())
    np.testing.assert_allclose(model.velocity(state)[:2], x @ pull, rtol=1e-6, atol=size)
    assert model.loss(state) == pytest.approx(value.item())


def numeric_jacobian(model: TwoPoint, state: np.ndarray, h: float = 1e-6) -> np.ndarray:
    columns = [
        (model.velocity(state + h * e) - model.velocity(state - h * e)) / (2 * h)
        for e in np.eye(len(state))
    ]
    return np.stack(columns, axis=-1)


@settings(max_examples=60, deadline=None)
@given(models(), st.tuples(output, output, output, output))
def test_jacobian_is_the_numeric_one(model, outputs):
    state = np.array(outputs if model.stop_gradient else outputs[:2])
    for at in (state, model.fixed_point):
        numeric = numeric_jacobian(model, at)
        size = np.abs(numeric).max() + 1e-3
        np.testing.assert_allclose(model.jacobian(at), numeric, rtol=1e-4, atol=1e-5 * size)


@settings(max_examples=60, deadline=None)
@given(models())
def test_eigenvalues_are_those_of_the_jacobian(model):
    jacobian = model.jacobian(model.fixed_point)
    values = np.linalg.eigvals(jacobian)
    size = np.abs(values).max()
    np.testing.assert_allclose(values.imag, 0, atol=1e-6 * size)
    np.testing.assert_allclose(model.eigenvalues(), np.sort(values.real), atol=1e-7 * size)


@settings(max_examples=60, deadline=None)
@given(models())
def test_proposition_1(model):
    """The largest eigenvalue changes sign on the line, whatever norms, overlap, rate and q."""
    bound = (1 - model.q) * model.tau_t * (1.0 if model.stop_gradient else 0.5)
    if abs(model.tau_s / max(bound, 1e-12) - 1) > 1e-6:
        assert (model.eigenvalues().max() < 0) == (model.tau_s < bound)


def test_grids_broadcast():
    t = np.geomspace(0.1, 1, 3)
    model = TwoPoint(t[:, None], t, stop_gradient=True)
    assert model.velocity(np.ones(4)).shape == (3, 3, 4)
    assert model.jacobian(np.ones(4)).shape == (3, 3, 4, 4)
    assert model.eigenvalues().shape == (3, 3, 4)
    assert model.loss(np.ones(4)).shape == (3, 3)


@pytest.mark.parametrize("stop_gradient", [True, False])
@pytest.mark.parametrize("q", [0.0, 0.8])
def test_extreme_temperatures_stay_finite(stop_gradient, q):
    t = np.array([0.0, 1e-3, 10.0])
    model = TwoPoint(np.array([[1e-3], [10.0]]), t, stop_gradient=stop_gradient, q=q)
    state = np.array([40.0, -40.0, 40.0, -40.0][: 4 if stop_gradient else 2])
    with np.errstate(over="raise", invalid="raise"):
        for y in (state, state / 1e4):
            assert np.isfinite(model.loss(y)).all()
            assert np.isfinite(model.velocity(y)).all()
            assert np.isfinite(model.jacobian(y)).all()


def test_hard_labels_have_no_jacobian_at_zero():
    model = TwoPoint(1.0, 0.0, stop_gradient=True)
    np.testing.assert_allclose(model.velocity([0.5, -0.5, 0.5, -0.5])[:2], [0.3775, -0.3775], 1e-3)
    with pytest.raises(AcclimateError, match="hard labels"):
        model.jacobian(model.fixed_point)
    with pytest.raises(AcclimateError, match="hard labels"):
        model.eigenvalues()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"overlap": 2.0}, "overlap"),
        ({"overlap": np.nan}, "overlap"),
        ({"norms": (-1.0, 1.0)}, "norms"),
        ({"norms": (np.nan, 1.0)}, "norms"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": np.nan}, "alpha"),
        ({"q": 1.5}, "q in"),
    ],
)
def test_impossible_models_are_refused(options, words):
    with pytest.raises(AcclimateError, match=words):
        TwoPoint(1.0, 1.0, stop_gradient=True, **options)
    with pytest.raises(AcclimateError, match="last axis 2"):
        TwoPoint(1.0, 1.0, stop_gradient=False).loss(np.zeros(4))


class TestErrata:
    """The printed form is not the truth; ours is (the tests above)."""

    model = TwoPoint(0.7, 0.4, stop_gradient=True, alpha=0.5, norms=(2.0, 0.5), overlap=0.3)

    def test_double_sign_of_the_loss(self):
        y = np.array([0.5, -0.5, 0.5, -0.5])
        assert self.model.loss(y) > 0
        assert printed.loss([self.model.loss(y)]) == -self.model.loss(y)

    def test_sign_of_the_teacher(self):
        y = np.array([0.5, -0.5, 0.2, -0.1])
        ours = self.model.velocity(y)[2:]
        np.testing.assert_allclose(printed.teacher_velocity(y[:2], y[2:], alpha=0.5), -ours)
        assert ours[0] > 0  # towards the student

    def test_one_over_tau_t(self):
        model = TwoPoint(0.7, 0.4, stop_gradient=False, norms=(2.0, 0.5), overlap=0.3)
        options = {"norms": model.norms, "overlap": model.overlap}
        y = np.array([0.5, -0.2])
        theirs = printed.entropy_velocity(y, tau_s=0.7, tau_t=0.4, **options)
        assert np.abs(theirs - model.velocity(y)).max() > 0.1
        # With τs = 1 both factors are one.
        model = TwoPoint(1.0, 0.4, stop_gradient=False, **options)
        theirs = printed.entropy_velocity(y, tau_s=1.0, tau_t=0.4, **options)
        np.testing.assert_allclose(theirs, model.velocity(y))

    def test_eigenvalues(self):
        m = self.model
        options = {"tau_s": m.tau_s, "tau_t": m.tau_t, "alpha": m.alpha}
        theirs = printed.eigenvalues_stop_gradient(**options, norms=m.norms, overlap=m.overlap)
        assert np.abs(theirs - m.eigenvalues()).max() > 0.1
        # Squared norms alone repair the pair of the + sign, not that of the - sign.
        squared = tuple(n**2 for n in m.norms)
        theirs = printed.eigenvalues_stop_gradient(**options, norms=squared, overlap=m.overlap)
        found = [np.abs(theirs - value).min() < 1e-9 for value in m.eigenvalues()]
        assert sum(found) == 2

    def test_a_bracket_that_vanishes_everywhere(self):
        assert printed.fixed_point_bracket(0.5, tau_s=0.7, tau_t=0.4) == 0
        assert self.model.velocity([0.5, 0.5, 0.5, 0.5])[0] != 0
