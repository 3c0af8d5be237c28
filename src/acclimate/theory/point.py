"""One point's loss and its slopes, in the reduced logits s = y_s/τs and t = y_t/τt.

The cross-entropy of ``eq:lossfunction`` is ``q = 0``; ``q`` in (0, 1] is the generalised
cross-entropy Σ_j p_t(j) (1 - p_s(j)^q) / q, which has the paper's robust pseudo-labels as its
limit τt → 0. With D = Σ_j p_t(j) p_s(j)^q, the slope along the student is exactly

    -∂ℓ/∂s = D (σ(t + q s) - σ(s)):

a cross-entropy whose teacher is sharper by q s, with a weight D on each point. Sigmoids neither
overflow nor cancel, and inverse temperatures have the limit of hard labels.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit

from acclimate.errors import AcclimateError

__all__ = [
    "Array", "check_descent", "check_exponent", "check_temperatures", "curvature", "inverse",
    "loss", "pull", "sigmoid", "student_slope", "teacher_slope",
]  # fmt: skip

Array: TypeAlias = NDArray[np.float64]

HARD = 1e200
"""Inverse temperature of a hard teacher: saturates any |y| > 1e-197 and keeps σ(0) = ½."""


def loss(s: Array, t: Array, *, q: float = 0.0) -> Array:
    """The loss of one point.

    >>> zero = np.array(0.0)
    >>> bool(np.isclose(loss(zero, zero), np.log(2))), float(loss(zero, zero, q=1.0))
    (True, 0.5)
    """
    yes, no = log_expit(s), log_expit(-s)
    if q > 0:
        yes, no = np.expm1(q * yes) / q, np.expm1(q * no) / q
    return np.asarray(-sigmoid(t) * yes - sigmoid(-t) * no)


def pull(
    student: ArrayLike,
    teacher: ArrayLike,
    bs: ArrayLike,
    bt: ArrayLike,
    *,
    stop_gradient: bool,
    q: float = 0.0,
) -> Array:
    """Minus the gradient along an output, for outputs of both and inverse temperatures.

    Without stop-gradient the teacher's output is the student's, and its slope is added.
    """
    bs, bt = np.asarray(bs, dtype=float), np.asarray(bt, dtype=float)
    s, t = np.asarray(student, dtype=float) * bs, np.asarray(teacher, dtype=float) * bt
    force = bs * student_slope(s, t, q=q)
    return np.asarray(force if stop_gradient else force + bt * teacher_slope(s, t, q=q))


def student_slope(s: Array, t: Array, *, q: float = 0.0) -> Array:
    """-∂ℓ/∂s: what the student follows.

    >>> float(student_slope(np.array(2.0), np.array(2.0)))
    0.0
    """
    if q == 0:
        return _difference(t, s)
    weight = sigmoid(t) * np.exp(q * log_expit(s)) + sigmoid(-t) * np.exp(q * log_expit(-s))
    return np.asarray(weight * _difference(t + q * s, s))


def teacher_slope(s: Array, t: Array, *, q: float = 0.0) -> Array:
    """-∂ℓ/∂t: what is added when the gradient runs through the teacher too."""
    return np.asarray(_slope(t) * _gap(s, q))


def curvature(s: Array, t: Array, *, q: float = 0.0) -> tuple[Array, Array, Array]:
    """-∂²ℓ/∂s², -∂²ℓ/∂s∂t and -∂²ℓ/∂t².

    >>> [float(c) for c in curvature(np.array(0.0), np.array(0.0))]
    [-0.25, 0.25, 0.0]
    """
    yes, no = sigmoid(s), sigmoid(-s)
    up = np.exp(q * log_expit(s)) * no
    down = np.exp(q * log_expit(-s)) * yes
    ss = sigmoid(t) * up * (q * no - yes) + sigmoid(-t) * down * (q * yes - no)
    st = _slope(t) * (up + down)
    tt = _slope(t) * (1 - 2 * sigmoid(t)) * _gap(s, q)
    return np.asarray(ss), np.asarray(st), np.asarray(tt)


def sigmoid(z: ArrayLike) -> Array:
    """1 / (1 + exp(-z)).

    >>> sigmoid([-1e4, 0.0, 1e4])
    array([0. , 0.5, 1. ])
    """
    return np.asarray(expit(np.asarray(z, dtype=float)))


def inverse(tau: ArrayLike) -> Array:
    """1/τ, where τ = 0 stands for hard labels.

    >>> sigmoid(np.array([-0.5, 0.0, 0.5]) * inverse(0.0))
    array([0. , 0.5, 1. ])
    """
    tau = np.asarray(tau, dtype=float)
    hard = tau == 0
    return np.asarray(np.where(hard, HARD, 1 / np.where(hard, 1.0, tau)))


def _slope(z: Array) -> Array:
    """σ'(z)."""
    e = np.exp(-np.abs(z))
    return np.asarray(e / (1 + e) ** 2)


def _gap(s: Array, q: float) -> Array:
    """(σ(s)^q - σ(-s)^q) / q, which is s for q = 0."""
    if q == 0:
        return s
    size = np.abs(s)
    gap = np.exp(q * log_expit(size)) * -np.expm1(-q * size) / q
    return np.asarray(np.sign(s) * gap)


def _difference(a: Array, b: Array) -> Array:
    """σ(a) - σ(b), to full relative precision where both are saturated.

    >>> bool(np.isclose(_difference(np.array(50.0), np.array(60.0)), -np.exp(-50.0)))
    True
    """
    ea, eb = np.exp(-np.abs(a)), np.exp(-np.abs(b))
    same = np.sign(a) * np.sign(b) >= 0
    # With a zero on one side, the sign comes from the other.
    sign = np.where(a == 0, np.sign(b), np.sign(a))
    return np.asarray(sign * np.where(same, eb - ea, 1 - ea * eb) / ((1 + ea) * (1 + eb)))


def check_temperatures(tau_s: ArrayLike, tau_t: ArrayLike) -> tuple[Array, Array]:
    """Both as arrays of floats, or an error that names the range."""
    student, teacher = np.asarray(tau_s, dtype=float), np.asarray(tau_t, dtype=float)
    if not (np.all(student > 0) and np.all(teacher >= 0)):
        raise AcclimateError(
            f"expected temperatures tau_s > 0 and tau_t >= 0, got {student}, {teacher}"
        )
    return student, teacher


def check_exponent(q: float) -> None:
    """Refuse what is no exponent of the generalised cross-entropy."""
    if not 0 <= q <= 1:
        raise AcclimateError(f"expected q in [0, 1], got {q}")


def check_descent(*, steps: int, lr: float, momentum: float) -> None:
    """Refuse what is no gradient descent."""
    if steps < 1 or not 0 < lr < np.inf or not 0 <= momentum < 1:
        raise AcclimateError(
            f"expected steps >= 1, finite lr > 0 and momentum in [0, 1), "
            f"got {steps}, {lr}, {momentum}"
        )
