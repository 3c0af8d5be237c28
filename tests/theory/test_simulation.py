"""Simulated descent: against torch's SGD, the flow, and the line of Proposition 1."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from acclimate.errors import AcclimateError
from acclimate.theory.boundary import (
    claimed_columns,
    deviation,
    overshoots,
    predicted,
    run_grid,
    time_to_shrink,
)
from acclimate.theory.continuous import integrate
from acclimate.theory.settings import BOUNDARY, FIGURES, MAIN_FIGURE, Settings
from acclimate.theory.simulation import simulate
from acclimate.theory.two_point import TwoPoint

METHODS = pytest.mark.parametrize("stop_gradient", [True, False])
NARROW = replace(BOUNDARY, low=1.0, high=10.0, count=62, steps=20_000)
"""The top of the benchmark's grid, with cells as wide as there."""


def test_settings_are_the_papers():
    assert (MAIN_FIGURE.lr, MAIN_FIGURE.momentum, MAIN_FIGURE.count) == (0.1, 0.9, 250)
    assert MAIN_FIGURE.temperatures[[0, -1]] == pytest.approx([1e-3, 10])
    assert {s.momentum for s in FIGURES["2p-standard"]} == {0.0}
    assert {s.start for s in FIGURES["2p-weight"]} == {(0.6, 0.3)}
    assert NARROW.cell == pytest.approx(BOUNDARY.cell, rel=1e-3)


@METHODS
@pytest.mark.parametrize(("tau_s", "tau_t"), [(0.5, 0.8), (1.0, 0.0), (0.3, 1.0)])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_are_those_of_torch(stop_gradient, tau_s, tau_t, momentum):
    x = torch.tensor([[1.0, 0.2], [0.3, -1.0]], dtype=torch.float64)  # these overlap
    w = torch.tensor([0.6, 0.3], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=momentum)
    for _ in range(30):
        y = x @ w
        teacher = y.detach() if stop_gradient else y
        label = (teacher > 0).double() if tau_t == 0 else torch.sigmoid(teacher / tau_t)
        loss = -(label * F.logsigmoid(y / tau_s) + (1 - label) * F.logsigmoid(-y / tau_s)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    run = simulate(
        tau_s,
        tau_t,
        stop_gradient=stop_gradient,
        momentum=momentum,
        start=(0.6, 0.3),
        points=x.numpy(),
        steps=30,
    )
    np.testing.assert_allclose(run.final, (x @ w).detach().numpy(), rtol=1e-9)


@METHODS
@pytest.mark.parametrize("q", [0.0, 0.5])
def test_short_steps_follow_the_flow(stop_gradient, q):
    model = TwoPoint(0.4, 1.0, stop_gradient=stop_gradient, alpha=2.0, q=q)
    flow = integrate(model, (0.6, -0.3), duration=4.0)
    options = {"stop_gradient": stop_gradient, "alpha": 2.0, "start": (0.6, 0.3), "q": q}
    run = simulate(0.4, 1.0, lr=1e-3, momentum=0.0, steps=4000, keep=4, **options)
    np.testing.assert_allclose(run.trajectory, flow.state[::25, :2], atol=1e-3)
    np.testing.assert_allclose(run.final, run.trajectory[-1])
    if stop_gradient:
        np.testing.assert_allclose(run.teacher, flow.state[-1, 2:], atol=1e-3)


@METHODS
def test_resting_cells_may_be_left_where_they_are(stop_gradient):
    """Against a plain loop over the closed forms, which leaves no cell out."""
    t = np.geomspace(1e-3, 10, 12)
    model = TwoPoint(t[:, None], t, stop_gradient=stop_gradient)
    y = np.broadcast_to([0.5, -0.5], (12, 12, 2)).copy()
    v = np.zeros_like(y)
    for _ in range(1000):
        state = np.concatenate([y, y], axis=-1) if stop_gradient else y
        v = 0.9 * v + model.velocity(state)[..., :2]
        y = y + 0.1 * v
    run = simulate(t[:, None], t, stop_gradient=stop_gradient, steps=1000, keep=10)
    # Cells that bounce about zero are chaotic: rounding decides where they are at the end.
    calm = ~overshoots(Settings(count=12), stop_gradient=stop_gradient)
    assert calm.mean() > 0.5
    np.testing.assert_allclose(run.final[calm], y[calm], atol=1e-5)
    assert np.isfinite(run.final).all()
    assert run.trajectory.shape == (11, 12, 12, 2)


@METHODS
def test_the_edge_is_on_the_line_where_the_flow_has_the_time(stop_gradient):
    claimed = claimed_columns(NARROW, stop_gradient=stop_gradient)
    assert claimed.sum() > 35
    run = run_grid(NARROW, stop_gradient=stop_gradient)
    cells = deviation(run.collapsed, NARROW, stop_gradient=stop_gradient)
    assert np.abs(cells[claimed]).max() <= 1


@METHODS
def test_what_differs_from_the_flow_has_steps_too_long(stop_gradient):
    coarse = Settings(count=30)
    run = run_grid(coarse, stop_gradient=stop_gradient)
    differs = run.collapsed != predicted(coarse, stop_gradient=stop_gradient)
    assert differs.any()
    assert not (differs & ~overshoots(coarse, stop_gradient=stop_gradient)).any()
    t = coarse.temperatures
    above = t[:, None] > t * (1 if stop_gradient else 0.5) * 1.001
    assert not ((run.collapsed | run.flipped) & above).any()


def test_a_lower_rate_needs_more_steps():
    options = {"stop_gradient": True, "momentum": 0.0}
    assert not simulate(2.0, 4.0, lr=0.01, steps=2000, **options).collapsed
    assert simulate(2.0, 4.0, lr=0.01, steps=20_000, **options).collapsed
    assert simulate(2.0, 4.0, lr=0.1, steps=2000, **options).collapsed


def test_long_steps_flip():
    run = simulate(0.01, 1.0, stop_gradient=True, lr=0.1, momentum=0.0, steps=1)
    assert run.flipped
    assert run.error == pytest.approx(1)
    learnt = simulate(1.0, 0.0, stop_gradient=True, steps=2000)
    assert learnt.error < 0.01
    assert simulate(0.5, 1.0, stop_gradient=True).error == pytest.approx(0.5, abs=0.01)


def test_one_output_that_vanishes_is_not_flipped():
    """Momentum carries it over zero and back; where it ends, it has no side."""
    run = simulate(0.4, 1.0, stop_gradient=False, start=(1.3, 0.5), steps=200)
    assert abs(run.final[1]) < 0.01 < run.final[0]
    assert np.sign(run.final[1]) != np.sign(run.start[1])
    assert not run.flipped
    assert not run.collapsed


@METHODS
def test_from_near_zero_it_grows_as_the_eigenvalue_says(stop_gradient):
    """A start so small that it seems to rest."""
    options = {"stop_gradient": stop_gradient, "momentum": 0.0, "lr": 0.01}
    run = simulate(2.0, 1.0, start=(1e-10, 1e-10), steps=2000, **options)
    rate = (2 - stop_gradient - 1 / 2) / (4 * 2)
    np.testing.assert_allclose(run.final / run.start, (1 + 0.01 * rate) ** 2000, rtol=1e-6)


def test_time_to_shrink_is_the_flows():
    model = TwoPoint(0.3, 1.0, stop_gradient=False)
    time = float(time_to_shrink(0.3, 1.0, start=0.5, level=0.05, stop_gradient=False))
    flow = integrate(model, (0.5, 0.5), duration=time)
    assert flow.state[-1, 0] == pytest.approx(0.05, rel=1e-3)
    # Inwards near zero and outwards at the start: it never gets there.
    assert time_to_shrink(0.4, 1.0, start=2.0, level=0.2, stop_gradient=False) == np.inf
    with pytest.raises(AcclimateError, match="level > 0"):
        time_to_shrink(0.3, 1.0, start=0.5, level=0.0, stop_gradient=False)


def test_entropy_collapses_only_from_near_zero():
    """Below τs = τt/2 zero is stable, but from far out the loss falls outwards."""
    model = TwoPoint(0.4, 1.0, stop_gradient=False)
    assert (model.eigenvalues() < 0).all()
    assert abs(integrate(model, (0.2, 0.2), duration=100).state[-1, 0]) < 1e-3
    assert integrate(model, (1.5, 1.5), duration=100).state[-1, 0] > 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": 0.0}, "lr > 0"),
        ({"lr": np.nan}, "lr > 0"),
        ({"q": 2.0}, "q in"),
        ({"momentum": 1.0}, "momentum"),
        ({"alpha": 20.0}, "overshoots"),
        ({"keep": 3}, "divide"),
        ({"keep": -5}, "divide"),
        ({"start": (1.0, 2.0, 3.0)}, "two finite points"),
        ({"start": (np.nan, 1.0)}, "two finite points"),
        ({"points": np.eye(3), "start": (1.0, 2.0, 3.0)}, "two finite points"),
    ],
)
def test_impossible_runs_are_refused(options, words):
    with pytest.raises(AcclimateError, match=words):
        simulate(1.0, 1.0, stop_gradient=True, **options)


def test_the_flow_takes_one_pair_of_temperatures():
    with pytest.raises(AcclimateError, match="simulate"):
        integrate(TwoPoint([1.0, 2.0], 1.0, stop_gradient=True), (0.5, 0.5), duration=1)
    for options in ({"duration": 0}, {"duration": np.nan}, {"duration": 1, "samples": 1}):
        with pytest.raises(AcclimateError, match="duration > 0"):
            integrate(TwoPoint(1.0, 1.0, stop_gradient=True), (0.5, 0.5), **options)


def test_hard_labels_grow():
    run = simulate([0.1, 1.0, 10.0], 0.0, stop_gradient=True, steps=500)
    assert not run.collapsed.any()
    assert (run.error < 0.5).all()
    flow = integrate(TwoPoint(1.0, 0.0, stop_gradient=True), (0.5, -0.5), duration=10)
    assert flow.state[-1, 0] > 1.5
