"""The settings of the simulations, fixed before anything was measured.

What fixes them is a time-scale argument, not a look at the result. With the teacher copied after
every step (α = 1/lr, the paper's "instant gradient updates" and the fastest teacher that does not
overshoot) an output near zero shrinks at the rate (1 - τs/τt) / (4 τs²), so one grid cell from the
line (1 - τs/τt = 0.036) a shrinkage to a tenth takes 4 τ² ln(10) / 0.036 ≈ 250 τ² units of time.
SGD of learning rate lr and momentum μ runs lr · steps / (1 - μ) units: 20,000 for ``BOUNDARY``,
enough, with a margin of two, for τ up to 6. Where τ is far below the start |y|, both sigmoids are
saturated and the time grows like τ² exp(|y|/τ) instead. The claim "within one cell of the line" is
made for those columns of the grid in which the exact time of the flow (``time_to_shrink``), one
cell from the line, is at most 1/``margin`` of the time simulated, and for no other column.
The slope at zero does not depend on α except for its size, so the line should not either.

The paper names neither the number of steps nor what its colour counts as an error. ``FIGURES``
takes 2,000 steps; a cell is collapsed if both outputs are below a tenth of the larger start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from acclimate.theory.point import Array

__all__ = ["BOUNDARY", "FIGURES", "MAIN_FIGURE", "METHODS", "Settings"]

METHODS = {"pseudo-labels": True, "entropy": False}
"""Names of the methods, and whether the gradient is stopped at the teacher."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A temperature grid, an optimiser, a start, and what counts as collapsed.

    >>> MAIN_FIGURE.temperatures[[0, -1]], BOUNDARY.duration
    (array([1.e-03, 1.e+01]), 20000.0)
    """

    low: float = 1e-3
    high: float = 10.0
    count: int = 250
    lr: float = 0.1
    momentum: float = 0.9
    alpha: float | None = None
    """The teacher's rate; None copies the student after every step, which is α = 1/lr."""
    start: tuple[float, float] = (0.5, 0.5)
    points: tuple[tuple[float, float], tuple[float, float]] = ((1.0, 0.0), (0.0, -1.0))
    steps: int = 2_000
    shrink: float = 0.1
    margin: float = 2.0

    @property
    def temperatures(self) -> Array:
        """The grid of both axes, evenly spaced in the logarithm."""
        return np.geomspace(self.low, self.high, self.count)

    @property
    def cell(self) -> float:
        """The ratio of neighbouring temperatures."""
        return float((self.high / self.low) ** (1 / (self.count - 1)))

    @property
    def duration(self) -> float:
        """The time of the gradient flow that these steps stand for."""
        return round(self.lr * self.steps / (1 - self.momentum), 9)


MAIN_FIGURE = Settings()
"""``fig:theory``: momentum 0.9, learning rate 0.1, start [0.5, 0.5]."""

BOUNDARY = Settings(steps=20_000)
"""For the claim about the boundary: the main figure, run for long enough."""

RATES = (0.01, 0.1, 1.0)

FIGURES: dict[str, tuple[Settings, ...]] = {
    "2p-momentum": tuple(replace(MAIN_FIGURE, lr=lr) for lr in RATES),
    "2p-standard": tuple(replace(MAIN_FIGURE, lr=lr, momentum=0.0) for lr in RATES),
    "2p-weight": tuple(replace(MAIN_FIGURE, lr=lr, start=(0.6, 0.3)) for lr in RATES),
}
"""The appendix's three figures; their learning rates are not in the text, and chosen here."""
