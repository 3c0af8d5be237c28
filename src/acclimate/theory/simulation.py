"""Gradient descent in the two-point model, over a whole grid of temperatures at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from acclimate.errors import AcclimateError
from acclimate.theory import point
from acclimate.theory.point import (
    Array,
    check_descent,
    check_exponent,
    check_temperatures,
    inverse,
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
    follow = 1.0 if alpha is None else lr * alpha
    descent = _Descent(gram=x @ x.T, stop_gradient=stop_gradient, lr=lr, momentum=momentum,
                       follow=follow, steps=steps, q=q, keep=keep)  # fmt: skip
    flat_s, flat_t = student.ravel(), teacher.ravel()
    blocks = [slice(i, i + BLOCK) for i in range(0, len(flat_s), BLOCK)]
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        done = list(pool.map(lambda b: descent.run(flat_s[b], flat_t[b], y), blocks))
    final, last, between = (np.concatenate(part, axis=-1) for part in zip(*done, strict=True))
    shape = (*student.shape, 2)
    path = np.moveaxis(between, 1, -1).reshape(-1, *shape) if keep else None
    return Simulation(tau_s=student, tau_t=teacher, start=y, final=final.T.reshape(shape),
                      teacher=last.T.reshape(shape), trajectory=path, shrink=shrink)  # fmt: skip


CHECK = 50
"""Steps between two checks for cells that have come to rest."""

REST = 1e-6
"""At rest: all that is left moves by less than this share of τs and of itself (what leaves zero
gains pace) or, at zero, of the start."""


@dataclass(frozen=True, eq=False)
class _Descent:
    """One optimiser for all cells. Arrays have the two points on the first axis."""

    gram: Array
    stop_gradient: bool
    lr: float
    momentum: float
    follow: float
    steps: int
    q: float
    keep: int

    def run(self, tau_s: Array, tau_t: Array, start: Array) -> tuple[Array, Array, Array]:
        """Final outputs of student and teacher, and the outputs in between."""
        bs, bt = inverse(tau_s), inverse(tau_t)
        y = np.repeat(start[:, None], len(tau_s), axis=1)
        one = not self.stop_gradient or self.follow == 1
        teacher, v = y if one else y.copy(), np.zeros_like(y)
        final, last = y.copy(), y.copy()
        between = [y.copy()] if self.keep else []
        cells = np.arange(len(tau_s))
        size = float(np.abs(start).max())
        for step in range(1, self.steps + 1):
            pull = self.pull(y, teacher, bs, bt)
            # In place, since at this size the time goes into memory, not arithmetic.
            v *= self.momentum
            v += pull
            y += self.lr * v
            if not one:
                teacher += self.follow * (y - teacher)
            if self.keep and step % (self.steps // self.keep) == 0:
                final[:, cells] = y
                between.append(final.copy())
            if step % CHECK == 0:
                moving = ~self._rests(y, teacher, v, pull, bs, size, self.steps - step)
                if not moving.all():
                    final[:, cells], last[:, cells] = y, teacher
                    cells, bs, bt = cells[moving], bs[moving], bt[moving]
                    y, v = y[:, moving], v[:, moving]
                    teacher = y if one else teacher[:, moving]
                    if not len(cells) and not self.keep:
                        break
        final[:, cells], last[:, cells] = y, teacher
        return final, last, np.stack(between) if between else np.empty((0, *final.shape))

    def pull(self, y: Array, teacher: Array, bs: Array, bt: Array) -> Array:
        """Minus the gradient, acted on by the points."""
        if self.q == 0:
            force = _cross_entropy_pull(y, teacher, bs, bt, self.stop_gradient)
        else:
            force = point.pull(y, teacher, bs, bt, stop_gradient=self.stop_gradient, q=self.q)
        if np.array_equal(self.gram, np.eye(2)):
            return force
        return np.asarray(self.gram @ force)

    def _rests(
        self, y: Array, teacher: Array, v: Array, pull: Array, bs: Array, size: float, left: int
    ) -> NDArray[np.bool_]:
        pace = self.lr * np.maximum(np.abs(v), np.abs(pull)) / (1 - self.momentum)
        lag = np.abs(teacher - y)
        move = pace * left + lag
        stuck = (move <= REST * np.minimum(np.abs(y), 1 / bs)).all(axis=0)
        zero = (np.maximum(np.abs(y), pace) + lag < REST * size).all(axis=0)
        return np.asarray(stuck | zero)


def _cross_entropy_pull(
    y: Array, teacher: Array, bs: Array, bt: Array, stop_gradient: bool
) -> Array:
    """The same as by ``point``, in fewer passes: σ(z) = (1 + tanh(z/2)) / 2.

    Where tanh is 1 to the last digit the pull is lost, but there it is below 1e-16/τ.
    """
    half_s, half_t = bs / 2, bt / 2
    force, label = y * half_s, teacher * half_t
    np.tanh(force, out=force)
    np.tanh(label, out=label)
    np.subtract(label, force, out=force)
    force *= half_s
    if not stop_gradient:
        np.multiply(label, label, out=label)
        np.subtract(1.0, label, out=label)
        label *= teacher
        label *= half_s * half_t
        force += label
    return force
