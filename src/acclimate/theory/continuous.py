"""The gradient flow: the two-point model in continuous time, and the dynamics of its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

from acclimate.errors import AcclimateError
from acclimate.theory import point
from acclimate.theory.point import Array, check_exponent, check_temperatures, inverse
from acclimate.theory.two_point import TwoPoint

__all__ = ["Flow", "integrate", "weight_loss", "weight_velocity", "weight_velocity_stop_gradient"]


@dataclass(frozen=True, eq=False)
class Flow:
    """Times, and the state at each of them on the first axis of ``state``."""

    time: Array
    state: Array


def integrate(
    model: TwoPoint,
    start: Sequence[float],
    *,
    duration: float,
    samples: int = 101,
    method: str = "LSODA",
    rtol: float = 1e-8,
    atol: float = 1e-12,
) -> Flow:
    """Follow the gradient flow from the outputs (y_k, y_l); a teacher starts equal to the student.

    ``start`` may also be a whole state of four. One pair of temperatures at a time.

    >>> flow = integrate(TwoPoint(0.25, 1.0, stop_gradient=True), (0.5, -0.5), duration=30)
    >>> flow.state.shape, bool((abs(flow.state[-1]) < 1e-4).all())  # below τs = τt: to zero
    ((101, 4), True)
    """
    if np.ndim(model.tau_s) or np.ndim(model.tau_t):
        raise AcclimateError(
            "expected one pair of temperatures, got arrays; simulate() takes whole grids"
        )
    if not 0 < duration < np.inf or samples < 2:
        raise AcclimateError(
            f"expected finite duration > 0 and samples >= 2, got {duration} and {samples}"
        )
    y = np.asarray(start, dtype=float)
    if model.stop_gradient and y.shape == (2,):
        y = np.concatenate([y, y])
    hard = float(np.asarray(model.tau_t)) == 0  # no Jacobian where hard labels jump
    takes_jacobian = method in ("LSODA", "Radau", "BDF") and not hard
    solved = solve_ivp(
        lambda _, state: model.velocity(state),
        (0.0, duration),
        y,
        method=method,
        t_eval=np.linspace(0.0, duration, samples),
        rtol=rtol,
        atol=atol,
        jac=(lambda _, state: model.jacobian(state)) if takes_jacobian else None,
    )
    if not solved.success:
        raise AcclimateError(
            f"expected the flow to be solvable, got: {solved.message} "
            "Try method='Radau' or a shorter duration."
        )
    return Flow(time=solved.t, state=solved.y.T)


def weight_loss(
    points: ArrayLike, student: ArrayLike, teacher: ArrayLike, *, tau_s: float, tau_t: float,
    q: float = 0.0,
) -> float:  # fmt: skip
    """Σ_i ℓ(x_i) for the weights of student and teacher.

    >>> round(weight_loss([[1, 0], [0, -1]], [0, 0], [0, 0], tau_s=1, tau_t=1), 4)  # 2 log 2
    1.3863
    """
    x, bs, bt = _checked(points, tau_s, tau_t, q)
    return float(point.loss(x @ np.asarray(student) * bs, x @ np.asarray(teacher) * bt, q=q).sum())


def weight_velocity_stop_gradient(
    points: ArrayLike, student: ArrayLike, teacher: ArrayLike, *, tau_s: float, tau_t: float,
    alpha: float = 1.0, q: float = 0.0,
) -> tuple[Array, Array]:  # fmt: skip
    """d/dt of the student's and of the teacher's weights (``eq:studentdynamics``)."""
    x, bs, bt = _checked(points, tau_s, tau_t, q)
    w, follows = np.asarray(student, dtype=float), np.asarray(teacher, dtype=float)
    pull = point.pull(x @ w, x @ follows, bs, bt, stop_gradient=True, q=q)
    return pull @ x, alpha * (w - follows)


def weight_velocity(
    points: ArrayLike, weights: ArrayLike, *, tau_s: float, tau_t: float, q: float = 0.0
) -> Array:
    """d/dt of the weights where student and teacher are one (``eq:nonstopgrad``)."""
    x, bs, bt = _checked(points, tau_s, tau_t, q)
    y = x @ np.asarray(weights)
    return np.asarray(point.pull(y, y, bs, bt, stop_gradient=False, q=q) @ x)


def _checked(points: ArrayLike, tau_s: float, tau_t: float, q: float) -> tuple[Array, Array, Array]:
    check_exponent(q)
    student, teacher = check_temperatures(tau_s, tau_t)
    return np.asarray(points, dtype=float), inverse(student), inverse(teacher)
