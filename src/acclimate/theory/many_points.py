"""Beyond the paper: N points and C classes, a linear student in weight space.

The slope at zero is (1/τt - 1/τs) / (C τs) times the points' second moments, so that the line of
Proposition 1 depends on neither N nor C nor the data. What two points cannot show is the other
collapse: all points in one class, outputs far from zero. ``classes`` counts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acclimate.errors import AcclimateError
from acclimate.theory.point import (
    Array,
    check_descent,
    check_exponent,
    check_temperatures,
    inverse,
)

__all__ = ["ManyPoints", "equivalent_teacher", "simulate_points", "slope"]


@dataclass(frozen=True, eq=False)
class ManyPoints:
    """Logits of every point at the start (C, N) and, for every cell, at the end (..., C, N)."""

    start: Array
    final: Array
    shrink: float

    @property
    def collapsed(self) -> NDArray[np.bool_]:
        """All logits, less their mean over the classes, are below ``shrink`` times the start's."""
        size = np.abs(_centred(self.final)).max(axis=(-2, -1))
        return np.asarray(size < self.shrink * np.abs(_centred(self.start)).max())

    @property
    def classes(self) -> NDArray[np.int64]:
        """How many classes the points are put into."""
        chosen = self.final.argmax(axis=-2)[..., None, :]
        every = np.arange(self.final.shape[-2])[:, None]
        return np.asarray((chosen == every).any(axis=-1).sum(axis=-1))


def simulate_points(
    points: ArrayLike,
    start: ArrayLike,
    tau_s: ArrayLike,
    tau_t: ArrayLike,
    *,
    stop_gradient: bool,
    lr: float = 0.1,
    momentum: float = 0.9,
    steps: int = 1_000,
    q: float = 0.0,
    shrink: float = 0.1,
) -> ManyPoints:
    """SGD on the mean loss of (N, d) points from (C, d) weights, the teacher copied every step.

    >>> points, weights = np.eye(3), 0.1 * np.eye(3)
    >>> run = simulate_points(points, weights, [0.5, 2.0], 1.0, stop_gradient=True)
    >>> run.collapsed, int(run.classes[1])
    (array([ True, False]), 3)
    """
    check_descent(steps=steps, lr=lr, momentum=momentum)
    check_exponent(q)
    x, w = np.asarray(points, dtype=float), np.asarray(start, dtype=float)
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[1]:
        raise AcclimateError(
            f"expected points (N, d) and start weights (C, d), got {x.shape} and {w.shape}"
        )
    student, teacher = np.broadcast_arrays(*check_temperatures(tau_s, tau_t))
    bs, bt = inverse(student)[..., None, None], inverse(teacher)[..., None, None]
    weights = np.broadcast_to(w, (*student.shape, *w.shape)).copy()
    v = np.zeros_like(weights)
    for _ in range(steps):
        v *= momentum
        v += slope(weights @ x.T, bs, bt, stop_gradient=stop_gradient, q=q) @ x / len(x)
        weights += lr * v
    return ManyPoints(start=w @ x.T, final=weights @ x.T, shrink=shrink)


def slope(logits: Array, bs: Array, bt: Array, *, stop_gradient: bool, q: float = 0.0) -> Array:
    """Minus the loss's gradient at logits (..., C, N), for inverse temperatures."""
    s, t = logits * bs, logits * bt
    log_p, label = _log_softmax(s), np.exp(_log_softmax(t))
    p = np.exp(log_p)
    if q == 0:
        losses, pull = -log_p, bs * (label - p)
    else:
        powers = np.exp(q * log_p)
        losses = (1 - powers) / q
        weighted = label * powers
        pull = bs * (weighted - p * weighted.sum(axis=-2, keepdims=True))
    if stop_gradient:
        return np.asarray(pull)
    mean = (label * losses).sum(axis=-2, keepdims=True)
    return np.asarray(pull - bt * (label * (losses - mean)))


def _log_softmax(z: Array) -> Array:
    z = z - z.max(axis=-2, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(axis=-2, keepdims=True)))


def _centred(logits: Array) -> Array:
    return np.asarray(logits - logits.mean(axis=-2, keepdims=True))


def equivalent_teacher(tau_s: ArrayLike, tau_t: ArrayLike, *, q: float) -> Array:
    """The teacher temperature at which plain cross-entropy pulls the same way: 1/(1/τt + q/τs).

    >>> equivalent_teacher(1.0, [0.0, 1.0, 5.0], q=0.8)  # 5 = 1/(1 - q): on the boundary τs = τt
    array([0.        , 0.55555556, 1.        ])
    """
    check_exponent(q)
    student, teacher = check_temperatures(tau_s, tau_t)
    return np.asarray(teacher * student / (student + q * teacher))
