"""One point's loss and its slopes, in the reduced logits s = y_s/τs and t = y_t/τt.

The cross-entropy of ``eq:lossfunction`` is ``q = 0``; ``q`` in (0, 1] is the generalised
cross-entropy Σ_j p_t(j) (1 - p_s(j)^q) / q, which has the paper's robust pseudo-labels as its
limit τt → 0. With D = Σ_j p_t(j) p_s(j)^q, the slope along the student is exactly

    -∂ℓ/∂s = D (σ(t + q s) - σ(s)):

a cross-entropy whose teacher is sharper by q s, with a weight D on each point.
"""

from __future__ import annotations

import numpy as np

from acclimate.theory.numerics import Array, log_sigmoid, sigmoid, sigmoid_difference

__all__ = ["curvature", "loss", "student_slope", "teacher_slope"]


def _slope(z: Array) -> Array:
    """σ'(z)."""
    e = np.exp(-np.abs(z))
    return np.asarray(e / (1 + e) ** 2)


def _gap(s: Array, q: float) -> Array:
    """(σ(s)^q - σ(-s)^q) / q, which is s for q = 0."""
    if q == 0:
        return s
    size = np.abs(s)
    gap = np.exp(q * log_sigmoid(size)) * -np.expm1(-q * size) / q
    return np.asarray(np.sign(s) * gap)


def loss(s: Array, t: Array, *, q: float = 0.0) -> Array:
    """The loss of one point.

    >>> zero = np.array(0.0)
    >>> bool(np.isclose(loss(zero, zero), np.log(2))), float(loss(zero, zero, q=1.0))
    (True, 0.5)
    """
    yes, no = log_sigmoid(s), log_sigmoid(-s)
    if q > 0:
        yes, no = np.expm1(q * yes) / q, np.expm1(q * no) / q
    return np.asarray(-sigmoid(t) * yes - sigmoid(-t) * no)


def student_slope(s: Array, t: Array, *, q: float = 0.0) -> Array:
    """-∂ℓ/∂s: what the student follows.

    >>> float(student_slope(np.array(2.0), np.array(2.0)))
    0.0
    """
    if q == 0:
        return sigmoid_difference(t, s)
    weight = sigmoid(t) * np.exp(q * log_sigmoid(s)) + sigmoid(-t) * np.exp(q * log_sigmoid(-s))
    return np.asarray(weight * sigmoid_difference(t + q * s, s))


def teacher_slope(s: Array, t: Array, *, q: float = 0.0) -> Array:
    """-∂ℓ/∂t: what is added when the gradient runs through the teacher too."""
    return np.asarray(_slope(t) * _gap(s, q))


def curvature(s: Array, t: Array, *, q: float = 0.0) -> tuple[Array, Array, Array]:
    """-∂²ℓ/∂s², -∂²ℓ/∂s∂t and -∂²ℓ/∂t².

    >>> [float(c) for c in curvature(np.array(0.0), np.array(0.0))]
    [-0.25, 0.25, 0.0]
    """
    yes, no = sigmoid(s), sigmoid(-s)
    up = np.exp(q * log_sigmoid(s)) * no
    down = np.exp(q * log_sigmoid(-s)) * yes
    ss = sigmoid(t) * up * (q * no - yes) + sigmoid(-t) * down * (q * yes - no)
    st = _slope(t) * (up + down)
    tt = _slope(t) * (1 - 2 * sigmoid(t)) * _gap(s, q)
    return np.asarray(ss), np.asarray(st), np.asarray(tt)
