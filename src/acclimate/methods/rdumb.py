"""RDumb (Press et al., NeurIPS 2023): ETA that goes back to the source every 1,000 steps.

ETA's loss and defaults (see :mod:`acclimate.methods.eta`: SGD with momentum 0.9, rate 0.00025,
batches of 64); after every ``every`` steps the parameters, the optimiser's moments and the moving
average of the predictions are those of the beginning.

What differs: the margin is 0.4 log C, as in ETA's text; the authors' code has log(1000) / 2 - 1.
Steps are counted whether or not an image counted in them, as there. The code goes back before a
step, here it is after one: all predictions are the same, but a run that ends with such a
step returns the source.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from acclimate.methods.eta import ETA
from acclimate.parts.base import PARTS, Step, option
from acclimate.parts.regularizers import Regularizer, reset_to_source

__all__ = ["RDUMB", "PeriodicReset"]


@PARTS["regularizer"].register("periodic-reset")
@dataclass(frozen=True, kw_only=True)
class PeriodicReset(Regularizer):
    """Back to the source after ``every`` steps."""

    every: int = option(1000, low=1)

    def after_step(self, state: Any, step: Step) -> None:
        if step.learner.steps % self.every == 0:
            reset_to_source(step.learner)


RDUMB = replace(
    ETA,
    name="rdumb",
    summary="RDumb: ETA, back to the source every 1,000 steps (Press et al. 2023)",
    regularizer=PeriodicReset(),
)
