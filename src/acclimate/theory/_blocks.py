"""Descent of a block of cells, each with its own temperatures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acclimate.theory import point
from acclimate.theory._numerics import Array, inverse

__all__ = ["Descent"]

LOOK = 50
"""Steps between two looks for cells that have come to rest."""

REST = 1e-6
"""At rest: all that is left moves by less than this share of τs and of itself (what leaves zero
gains pace) or, at zero, of the start."""


@dataclass(frozen=True, eq=False)
class Descent:
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
        """Final outputs of student and teacher, and the outputs kept on the way."""
        bs, bt = inverse(tau_s), inverse(tau_t)
        y = np.repeat(start[:, None], len(tau_s), axis=1)
        one = not self.stop_gradient or self.follow == 1
        teacher, v = y if one else y.copy(), np.zeros_like(y)
        final, last = y.copy(), y.copy()
        kept = [y.copy()] if self.keep else []
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
                kept.append(final.copy())
            if step % LOOK == 0:
                moving = ~self._rests(y, teacher, v, pull, bs, size, self.steps - step)
                if not moving.all():
                    final[:, cells], last[:, cells] = y, teacher
                    cells, bs, bt = cells[moving], bs[moving], bt[moving]
                    y, v = y[:, moving], v[:, moving]
                    teacher = y if one else teacher[:, moving]
                    if not len(cells) and not self.keep:
                        break
        final[:, cells], last[:, cells] = y, teacher
        return final, last, np.stack(kept) if kept else np.empty((0, *final.shape))

    def pull(self, y: Array, teacher: Array, bs: Array, bt: Array) -> Array:
        """Minus the gradient, acted on by the points."""
        if self.q == 0:
            force = _cross_entropy_pull(y, teacher, bs, bt, self.stop_gradient)
        else:
            s, t = y * bs, teacher * bt
            force = bs * point.student_slope(s, t, q=self.q)
            if not self.stop_gradient:
                force += bt * point.teacher_slope(s, t, q=self.q)
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
