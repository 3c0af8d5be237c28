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

    def velocity(_: float, state: Array) -> Array:
        return model.velocity(state)

    def jacobian(_: float, state: Array) -> Array:
        return model.jacobian(state)

    solved = solve_ivp(
        velocity,
        (0.0, duration),
        y,
        method=method,
        t_eval=np.linspace(0.0, duration, samples),
        rtol=rtol,
        atol=atol,
        jac=None if hard or method not in ("LSODA", "Radau", "BDF") else jacobian,
    )
    if not solved.success:
        raise AcclimateError(
            f"expected the flow to be solvable, got: {solved.message} "
            "Try method='Radau' or a shorter duration."
        )
    return Flow(time=solved.t, state=solved.y.T)


def weight_loss(
    points: ArrayLike,
    student: ArrayLike,
    teacher: ArrayLike,
    *,
    tau_s: float,
    tau_t: float,
    q: float = 0.0,
) -> float:
    """Σ_i ℓ(x_i) for the weights of student and teacher.

    >>> round(weight_loss([[1, 0], [0, -1]], [0, 0], [0, 0], tau_s=1, tau_t=1), 4)  # 2 log 2
    1.3863
    """
    check_exponent(q)
    _, y, z = _outputs(points, student, teacher, tau_s, tau_t)
    return float(point.loss(y * inverse(tau_s), z * inverse(tau_t), q=q).sum())


def weight_velocity_stop_gradient(
    points: ArrayLike,
    student: ArrayLike,
    teacher: ArrayLike,
    *,
    tau_s: float,
    tau_t: float,
    alpha: float = 1.0,
    q: float = 0.0,
) -> tuple[Array, Array]:
    """d/dt of the student's and of the teacher's weights (``eq:studentdynamics``)."""
    w, follows = np.asarray(student, dtype=float), np.asarray(teacher, dtype=float)
    pull = _pull(points, w, follows, tau_s, tau_t, stop_gradient=True, q=q)
    return pull, alpha * (w - follows)


def weight_velocity(
    points: ArrayLike, weights: ArrayLike, *, tau_s: float, tau_t: float, q: float = 0.0
) -> Array:
    """d/dt of the weights where student and teacher are one (``eq:nonstopgrad``)."""
    return _pull(points, weights, weights, tau_s, tau_t, stop_gradient=False, q=q)


def _pull(
    points: ArrayLike,
    student: ArrayLike,
    teacher: ArrayLike,
    tau_s: float,
    tau_t: float,
    *,
    stop_gradient: bool,
    q: float,
) -> Array:
    check_exponent(q)
    x, y, z = _outputs(points, student, teacher, tau_s, tau_t)
    bs, bt = inverse(tau_s), inverse(tau_t)
    return np.asarray(point.pull(y, z, bs, bt, stop_gradient=stop_gradient, q=q) @ x)


def _outputs(
    points: ArrayLike, student: ArrayLike, teacher: ArrayLike, tau_s: float, tau_t: float
) -> tuple[Array, Array, Array]:
    check_temperatures(tau_s, tau_t)
    x = np.asarray(points, dtype=float)
    return x, x @ np.asarray(student, dtype=float), x @ np.asarray(teacher, dtype=float)
