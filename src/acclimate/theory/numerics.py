"""Sigmoids that neither overflow nor cancel, and inverse temperatures with the hard limit."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acclimate.errors import AcclimateError

__all__ = [
    "Array",
    "check_descent",
    "check_exponent",
    "check_temperatures",
    "inverse",
    "log_sigmoid",
    "sigmoid",
    "sigmoid_difference",
]

Array: TypeAlias = NDArray[np.float64]

HARD = 1e200
"""Inverse temperature of a hard teacher: saturates any |y| > 1e-197 and keeps σ(0) = ½."""


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


def inverse(tau: ArrayLike) -> Array:
    """1/τ, where τ = 0 stands for hard labels.

    >>> sigmoid(np.array([-0.5, 0.0, 0.5]) * inverse(0.0))
    array([0. , 0.5, 1. ])
    """
    tau = np.asarray(tau, dtype=float)
    hard = tau == 0
    return np.asarray(np.where(hard, HARD, 1 / np.where(hard, 1.0, tau)))


def sigmoid(z: ArrayLike) -> Array:
    """1 / (1 + exp(-z)).

    >>> sigmoid([-1e4, 0.0, 1e4])
    array([0. , 0.5, 1. ])
    """
    z = np.asarray(z, dtype=float)
    e = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, e) / (1 + e))


def log_sigmoid(z: ArrayLike) -> Array:
    """log σ(z), finite for any finite z.

    >>> log_sigmoid([-1e4, 1e4])
    array([-10000.,      0.])
    """
    z = np.asarray(z, dtype=float)
    return np.asarray(np.minimum(z, 0.0) - np.log1p(np.exp(-np.abs(z))))


def sigmoid_difference(a: Array, b: Array) -> Array:
    """σ(a) - σ(b), to full relative precision where both are saturated.

    >>> bool(np.isclose(sigmoid_difference(np.array(50.0), np.array(60.0)), -np.exp(-50.0)))
    True
    """
    ea, eb = np.exp(-np.abs(a)), np.exp(-np.abs(b))
    same = np.sign(a) * np.sign(b) >= 0
    # With a zero on one side, the sign comes from the other.
    sign = np.where(a == 0, np.sign(b), np.sign(a))
    return np.asarray(sign * np.where(same, eb - ea, 1 - ea * eb) / ((1 + ea) * (1 + eb)))
