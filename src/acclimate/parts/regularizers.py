"""What holds the learner back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from acclimate.parts.base import PARTS, LearnerLike, Part

__all__ = ["NoRegularizer", "Regularizer", "reset_to_source"]


@dataclass(frozen=True, kw_only=True)
class Regularizer(Part):
    """A term added to the loss, or a pull after each step."""


@PARTS["regularizer"].register("none")
@dataclass(frozen=True, kw_only=True)
class NoRegularizer(Regularizer):
    """Nothing: the paper's own methods add no term to the objective."""

    steady = True


def reset_to_source(learner: LearnerLike, *, keep: Iterable[str] = ()) -> None:
    """Back to the source: parameters, the optimiser's moments, and what was remembered for them.

    Parameters named in ``keep`` stay.
    """
    kept = {name: learner.learning[name].detach().clone() for name in keep}
    learner.restore_source()
    with torch.no_grad():
        for name, value in kept.items():
            learner.learning[name].copy_(value)
    learner.states["optimizer"].state.clear()
    learner.statistics.release()
    # Only what it remembers: pools and captured graphs hold the control itself.
    learner.statistics.running = learner.parts["normalization"].prepare(learner).running
    for slot in ("teacher", "filter"):
        learner.states[slot] = learner.parts[slot].prepare(learner)
