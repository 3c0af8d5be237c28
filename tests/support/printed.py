"""The formulas as the paper prints them, mistakes and all; tests state how they differ."""

from __future__ import annotations

import numpy as np

from acclimate.theory.point import sigmoid


def teacher_velocity(student, teacher, *, alpha):
    """``eq:twopointODEs``: the main text's sign; the appendix has it right."""
    return alpha * (teacher - student)


def loss(losses):
    """``eq:lossfunction``: L = -Σ ℓ, where ℓ already has its minus (``eq:lossunified``)."""
    return -np.sum(losses)


def entropy_velocity(y, *, tau_s, tau_t, norms, overlap):
    """``eq:nostopgradkl``: 1/τt on the diagonal, 1/(τs τt) off it."""
    first = (sigmoid(y / tau_t) - sigmoid(y / tau_s)) / tau_s
    through = sigmoid(y / tau_t) * sigmoid(-y / tau_t) * y
    own, other = first + through / tau_t, first + through / (tau_s * tau_t)
    return np.array(
        [
            norms[0] ** 2 * own[0] + overlap * other[1],
            norms[1] ** 2 * own[1] + overlap * other[0],
        ]
    )


def eigenvalues_stop_gradient(*, tau_s, tau_t, alpha, norms, overlap):
    """λ± and λ̃±: B from unsquared norms, and A± = 8 α τs² ± B with one and the same B."""
    k, l_ = norms
    b = k + l_ + np.sqrt((k - l_) ** 2 + 4 * overlap**2)
    values = []
    for a in (8 * alpha * tau_s**2 + b, 8 * alpha * tau_s**2 - b):
        root = np.sqrt(complex(a * a + 32 * alpha * tau_s**2 * b * (tau_s / tau_t - 1)))
        values += [-(a + root) / (16 * tau_s**2), (-a + root) / (16 * tau_s**2)]
    return np.sort_complex(np.array(values))


def fixed_point_bracket(y, *, tau_s, tau_t):
    """σt(y) σs(-y) - σs(-y) σt(y): zero everywhere, so it says nothing of the fixed point."""
    return sigmoid(y / tau_t) * sigmoid(-y / tau_s) - sigmoid(-y / tau_s) * sigmoid(y / tau_t)
