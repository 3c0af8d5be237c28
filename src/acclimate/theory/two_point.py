"""The two-point model: loss, dynamics, Jacobian and eigenvalues in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from acclimate.errors import AcclimateError
from acclimate.theory import point
from acclimate.theory.point import Array, check_exponent, check_temperatures, inverse

__all__ = ["TwoPoint"]


@dataclass(frozen=True, eq=False)
class TwoPoint:
    """A linear student (and teacher) seen through its outputs y = x·w on two points.

    A state's last axis is (y_k, y_l) of the student, followed with stop-gradient by (y_k, y_l) of
    the teacher, which follows the student at the rate ``alpha``; without stop-gradient both are
    one. ``norms`` are ‖x_k‖ and ‖x_l‖, ``overlap`` is x_k·x_l. Temperatures may be arrays that
    broadcast against a state's other axes. ``q`` > 0 is the generalised cross-entropy.

    >>> model = TwoPoint(tau_s=1.0, tau_t=2.0, stop_gradient=True)
    >>> model.velocity(model.fixed_point)
    array([0., 0., 0., 0.])
    >>> bool((model.eigenvalues() < 0).all())  # stable at zero: it collapses
    True
    """

    tau_s: ArrayLike
    tau_t: ArrayLike
    stop_gradient: bool
    alpha: float = 1.0
    norms: tuple[float, float] = (1.0, 1.0)
    overlap: float = 0.0
    q: float = 0.0

    def __post_init__(self) -> None:
        check_temperatures(self.tau_s, self.tau_t)
        check_exponent(self.q)
        k, l_ = self.norms
        if not (k >= 0 and l_ >= 0):
            raise AcclimateError(f"expected norms >= 0, got {k:g} and {l_:g}")
        if not abs(self.overlap) <= k * l_ * (1 + 1e-12):
            raise AcclimateError(
                f"expected |overlap| <= {k * l_:g}, the product of the norms, got {self.overlap:g}"
            )
        if not self.alpha >= 0:
            raise AcclimateError(f"expected alpha >= 0, got {self.alpha:g}")

    @property
    def gram(self) -> Array:
        """The inner products of the two points."""
        (k, l_), o = self.norms, self.overlap
        return np.array([[k * k, o], [o, l_ * l_]])

    @property
    def fixed_point(self) -> Array:
        """The trivial representation, all zeros."""
        return np.zeros(4 if self.stop_gradient else 2)

    def _inverses(self) -> tuple[Array, Array]:
        return inverse(self.tau_s)[..., None], inverse(self.tau_t)[..., None]

    def _split(self, state: ArrayLike) -> tuple[Array, Array]:
        y = np.asarray(state, dtype=float)
        size = len(self.fixed_point)
        if y.shape[-1] != size:
            raise AcclimateError(f"expected a state of last axis {size}, got {y.shape}")
        return y[..., :2], y[..., -2:]

    def loss(self, state: ArrayLike) -> Array:
        """Σ ℓ over both points (``eq:lossfunction`` without its double sign)."""
        student, teacher = self._split(state)
        bs, bt = self._inverses()
        return np.asarray(point.loss(student * bs, teacher * bt, q=self.q).sum(axis=-1))

    def velocity(self, state: ArrayLike) -> Array:
        """The right-hand side of ``eq:twopoints`` or ``eq:nostopgradkl``."""
        student, teacher = self._split(state)
        bs, bt = self._inverses()
        pull = point.pull(student, teacher, bs, bt, stop_gradient=self.stop_gradient, q=self.q)
        if not self.stop_gradient:
            return np.asarray(pull @ self.gram)
        follow = np.broadcast_to(self.alpha * (student - teacher), pull.shape)
        return np.concatenate([pull @ self.gram, follow], axis=-1)

    def jacobian(self, state: ArrayLike) -> Array:
        """∂velocity_i/∂state_j on the last two axes."""
        student, teacher = self._split(state)
        bs, bt = self._inverses()
        if np.any((np.asarray(self.tau_t)[..., None] == 0) & (teacher == 0)):
            raise AcclimateError(
                "expected tau_t > 0 where the teacher's output is 0, got hard labels, which jump "
                "there; take a small tau_t, or ask will_collapse, which knows the limit"
            )
        ss, st, tt = point.curvature(student * bs, teacher * bt, q=self.q)
        eye, mixed = np.eye(2), bs * bt * st
        # Column j of gram @ diag(v) is gram[:, j] v_j.
        if not self.stop_gradient:
            return np.asarray(self.gram * (bs**2 * ss + 2 * mixed + bt * (bt * tt))[..., None, :])
        own, cross = self.gram * (bs**2 * ss)[..., None, :], self.gram * mixed[..., None, :]
        below = np.broadcast_to(self.alpha * np.hstack([eye, -eye]), (*own.shape[:-2], 2, 4))
        return np.concatenate([np.concatenate([own, cross], axis=-1), below], axis=-2)

    def eigenvalues(self) -> Array:
        """Eigenvalues of the Jacobian at the fixed point, all real, in ascending order.

        With the Gram matrix's eigenvalues g = (n_k + n_l ± √((n_k - n_l)² + 4 (x_k·x_l)²)) / 2,
        n the *squared* norms, a = 2^-q (1 - q) g / (4 τs²) and c = 2^-q g / (4 τs τt), they are
        2 c - a without stop-gradient, and the roots of λ² + (a + α) λ + α (a - c) with it.
        """
        tau_s, tau_t = check_temperatures(self.tau_s, self.tau_t)
        if np.any(tau_t == 0):
            raise AcclimateError(
                "expected tau_t > 0, got 0: hard labels jump at the fixed point, "
                "so that there is no Jacobian; will_collapse knows the limit"
            )
        g = np.maximum(np.linalg.eigvalsh(self.gram), 0.0) * 2**-self.q / 4
        a = (1 - self.q) * g / tau_s[..., None] ** 2
        c = g / (tau_s * tau_t)[..., None]
        if not self.stop_gradient:
            return np.sort(2 * c - a, axis=-1)
        total = a + self.alpha
        fast = -(total + np.sqrt((a - self.alpha) ** 2 + 4 * self.alpha * c)) / 2
        # The product of the roots gives the slow one without cancellation.
        slow = np.divide(self.alpha * (a - c), fast, out=np.zeros_like(fast), where=fast != 0)
        return np.sort(np.concatenate([fast, slow], axis=-1), axis=-1)
