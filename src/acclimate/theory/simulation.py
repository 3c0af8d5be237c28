"""Gradient descent in the two-point model, over a whole grid of temperatures at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acclimate.errors import AcclimateError
from acclimate.theory._blocks import Descent
from acclimate.theory._numerics import (
    Array,
    check_descent,
    check_exponent,
    check_temperatures,
    sigmoid,
)

__all__ = ["Simulation", "simulate"]

BLOCK = 8192
"""Cells worked on at a time, so that they stay in the processor's cache."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """Where every cell of the grid ended. Outputs have a last axis of 2, one for each point."""

    tau_s: Array
    tau_t: Array
    start: Array
    final: Array
    teacher: Array
    trajectory: Array | None
    """With ``keep``: the student's outputs at the start and after every steps/keep steps."""
    shrink: float

    @property
    def collapsed(self) -> NDArray[np.bool_]:
        """Both outputs are below ``shrink`` times the larger of the start."""
        return np.asarray(self._gone.all(axis=-1))

    @property
    def flipped(self) -> NDArray[np.bool_]:
        """An output is on the wrong side of zero and not near it: the steps were too long."""
        wrong = np.sign(self.final) != np.sign(self.start)
        return np.asarray((wrong & ~self._gone).any(axis=-1))

    @property
    def _gone(self) -> NDArray[np.bool_]:
        return np.asarray(np.abs(self.final) < self.shrink * np.abs(self.start).max())

    @property
    def error(self) -> Array:
        """What the student gives the wrong class, on average: 0 learnt, ½ collapsed, 1 flipped."""
        s = np.sign(self.start) * self.final / self.tau_s[..., None]
        return np.asarray(sigmoid(-s).mean(axis=-1))


def simulate(
    tau_s: ArrayLike,
    tau_t: ArrayLike,
    *,
    stop_gradient: bool,
    lr: float = 0.1,
    momentum: float = 0.9,
    alpha: float | None = None,
    start: Sequence[float] = (0.5, 0.5),
    points: ArrayLike = ((1.0, 0.0), (0.0, -1.0)),
    steps: int = 2_000,
    q: float = 0.0,
    keep: int = 0,
    shrink: float = 0.1,
    threads: int | None = None,
) -> Simulation:
    """SGD (as torch's) from the weights ``start``, for temperatures that broadcast to a grid.

    After each step of the student the teacher moves by lr·alpha of the way to it; ``alpha=None``
    copies the student. ``tau_t = 0`` means hard labels, ``q`` > 0 the generalised cross-entropy.

    >>> simulate([0.5, 2.0], 1.0, stop_gradient=True, steps=500).collapsed
    array([ True, False])
    """
    check_descent(steps=steps, lr=lr, momentum=momentum)
    check_exponent(q)
    if alpha is not None and not 0 <= alpha * lr <= 1:
        raise AcclimateError(
            f"expected 0 <= alpha * lr <= 1, got {alpha * lr:g}: "
            "above 1 the teacher overshoots the student; alpha=None copies it"
        )
    if keep < 0 or (keep and steps % keep):
        raise AcclimateError(f"expected keep >= 0 to divide steps, got {keep} and {steps}")
    student, teacher = np.broadcast_arrays(*check_temperatures(tau_s, tau_t))
    x, w = np.asarray(points, dtype=float), np.asarray(start, dtype=float)
    if len(x) != 2 or x.shape[1:] != w.shape or not (np.isfinite(x).all() and np.isfinite(w).all()):
        raise AcclimateError(
            "expected two finite points (2, d) and start weights (d,), "
            f"got {x.tolist()} and {w.tolist()}"
        )
    y = x @ w
    descent = Descent(
        gram=x @ x.T,
        stop_gradient=stop_gradient,
        lr=lr,
        momentum=momentum,
        follow=1.0 if alpha is None else lr * alpha,
        steps=steps,
        q=q,
        keep=keep,
    )
    flat_s, flat_t = student.ravel(), teacher.ravel()
    blocks = [slice(i, i + BLOCK) for i in range(0, len(flat_s), BLOCK)]
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        done = list(pool.map(lambda b: descent.run(flat_s[b], flat_t[b], y), blocks))
    final, last, kept = (np.concatenate(part, axis=-1) for part in zip(*done, strict=True))
    shape = (*student.shape, 2)
    path = np.moveaxis(kept, 1, -1).reshape(-1, *shape) if keep else None
    return Simulation(
        tau_s=student,
        tau_t=teacher,
        start=y,
        final=final.T.reshape(shape),
        teacher=last.T.reshape(shape),
        trajectory=path,
        shrink=shrink,
    )
