"""Robust pseudo-labels (generalised cross-entropy, GCE) on the diagram of Proposition 1.

For any number of classes the slope of the loss Σ_j p_t(j) (1 - p_s(j)^q) / q along the student's
logits is that of the plain cross-entropy, with two changes: a weight D = Σ_j p_t(j) p_s(j)^q on
each image, which is never 0 and so moves no fixed point, and a teacher of inverse temperature
1/τt + q/τs in place of 1/τt. Hence GCE at (τs, τt) has the stability of cross-entropy at
(τs, ``equivalent_teacher``), and collapses below τs = (1 - q) τt: at q = 1 never, and with hard
labels (τt = 0), as the paper uses it, at no q. Without stop-gradient the bound is half of that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from acclimate.theory._numerics import Array, check_exponent, check_temperatures

__all__ = ["equivalent_teacher"]


def equivalent_teacher(tau_s: ArrayLike, tau_t: ArrayLike, *, q: float) -> Array:
    """The teacher temperature at which plain cross-entropy pulls the same way: 1/(1/τt + q/τs).

    >>> equivalent_teacher(1.0, [0.0, 1.0, 5.0], q=0.8)  # 5 = 1/(1 - q): on the boundary τs = τt
    array([0.        , 0.55555556, 1.        ])
    """
    check_exponent(q)
    student, teacher = check_temperatures(tau_s, tau_t)
    return np.asarray(teacher * student / (student + q * teacher))
