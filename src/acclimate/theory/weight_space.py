"""The same model in weight space: a linear student on N points (``eq:lossfunction``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from acclimate.theory import point
from acclimate.theory._numerics import Array, check_exponent, check_temperatures, inverse

__all__ = ["weight_loss", "weight_velocity", "weight_velocity_stop_gradient"]


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
    s, t = _reduced(points, student, teacher, tau_s, tau_t)
    return float(point.loss(s, t, q=q).sum())


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
    check_exponent(q)
    s, t = _reduced(points, student, teacher, tau_s, tau_t)
    pull = point.student_slope(s, t, q=q) / tau_s
    follow = alpha * (np.asarray(student, dtype=float) - np.asarray(teacher, dtype=float))
    return pull @ np.asarray(points, dtype=float), follow


def weight_velocity(
    points: ArrayLike, weights: ArrayLike, *, tau_s: float, tau_t: float, q: float = 0.0
) -> Array:
    """d/dt of the weights where student and teacher are one (``eq:nonstopgrad``)."""
    check_exponent(q)
    s, t = _reduced(points, weights, weights, tau_s, tau_t)
    pull = point.student_slope(s, t, q=q) / tau_s
    pull = pull + point.teacher_slope(s, t, q=q) * inverse(tau_t)
    return np.asarray(pull @ np.asarray(points, dtype=float))


def _reduced(
    points: ArrayLike, student: ArrayLike, teacher: ArrayLike, tau_s: float, tau_t: float
) -> tuple[Array, Array]:
    check_temperatures(tau_s, tau_t)
    x = np.asarray(points, dtype=float)
    s = x @ np.asarray(student, dtype=float) * inverse(tau_s)
    return s, x @ np.asarray(teacher, dtype=float) * inverse(tau_t)
