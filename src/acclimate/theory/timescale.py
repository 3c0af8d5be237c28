"""How long the gradient flow takes to collapse: why a finite run sees less than all of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import trapezoid

from acclimate.errors import AcclimateError
from acclimate.theory import point
from acclimate.theory._numerics import Array, check_exponent, check_temperatures, inverse

__all__ = ["pull", "time_to_shrink"]

NODES = 400
ROWS = 4096


def pull(
    y: ArrayLike, tau_s: ArrayLike, tau_t: ArrayLike, *, stop_gradient: bool, q: float = 0.0
) -> Array:
    """dy/dt of one point of norm 1 that overlaps with no other, its teacher at one with it.

    Without stop-gradient and below τs = τt/2 it leads to zero only from near zero: at larger
    outputs the loss falls outwards again.

    >>> [round(float(pull(y, 0.4, 1.0, stop_gradient=False)), 4) for y in (0.5, 2.0)]
    [-0.0933, 0.2437]
    """
    out = np.asarray(y, dtype=float)
    bs, bt = inverse(tau_s), inverse(tau_t)
    s, t = out * bs, out * bt
    force = bs * point.student_slope(s, t, q=q)
    return force if stop_gradient else force + bt * point.teacher_slope(s, t, q=q)


def time_to_shrink(
    tau_s: ArrayLike,
    tau_t: ArrayLike,
    *,
    start: float,
    level: float,
    stop_gradient: bool,
    q: float = 0.0,
) -> Array:
    """The flow's time from output ``start`` down to ``level``: ∫ dy / |pull|; inf if it never is.

    >>> near_zero = time_to_shrink(1.0, 2.0, start=1e-3, level=1e-4, stop_gradient=True)
    >>> bool(np.isclose(near_zero, np.log(10) * 4 / (1 - 1 / 2)))  # the linear rate
    True
    >>> time_to_shrink([2.0, 0.4], 1.0, start=2.0, level=0.2, stop_gradient=False)
    array([inf, inf])
    """
    student, teacher = np.broadcast_arrays(*check_temperatures(tau_s, tau_t))
    check_exponent(q)
    if not level > 0:
        raise AcclimateError(f"expected level > 0, which is all that is ever reached, got {level}")
    if start <= level:
        return np.zeros(student.shape)
    # Even steps in log y suit both ends: near zero the pull is linear in y.
    log_y = np.linspace(np.log(level), np.log(start), NODES)
    y = np.exp(log_y)
    flat_s, flat_t = student.ravel(), teacher.ravel()
    times = np.empty(len(flat_s))
    for i in range(0, len(flat_s), ROWS):  # bounds the memory
        rows = slice(i, i + ROWS)
        speed = -pull(y, flat_s[rows, None], flat_t[rows, None], stop_gradient=stop_gradient, q=q)
        inward = np.asarray(np.all(speed > 0, axis=1))
        slowness = y / np.where(inward[:, None], speed, 1.0)
        times[rows] = np.where(inward, trapezoid(slowness, log_y, axis=1), np.inf)
    return times.reshape(student.shape)
