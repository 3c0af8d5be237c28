"""CMF, continual momentum filtering on parameter space (Lee & Chang, ICLR 2024).

ROID's loss and predictions (see :mod:`acclimate.methods.roid`), with another anchor: the source's
parameters are taken for hidden values that drift, and a Kalman filter follows them. After each step

    h⁻ = α h + (1 - α) θ°,     v ← α² v + q,     β = (1 - q) / (v + 1 - q) within [0.89, 0.9999],
    h ← β h⁻ + (1 - β) θ,      v ← β v,
    θ ← γ θ + (1 - γ) h,

with h = θ° and v = 0 at first, α = γ = 0.99, and q = 0.005 for 38,400 learning values (the affines
of a ViT-B/16), more in proportion for more.

Defaults are the authors' for ImageNet-C: SGD with momentum 0.9, rate 0.00025, batches of 64.

What differs: what differs in ROID, and nothing else; as in the code a β of 0.9999 and more is 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from acclimate.methods.roid import ROID
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.regularizers import Regularizer

__all__ = ["CMF", "KalmanAnchor"]

VALUES = 38_400
"""For how many learning values the noise is meant."""
LEAST, CERTAIN = 0.89, 0.9999


@dataclass
class Hidden:
    """The filter's estimate of the parameters, and its variance."""

    values: dict[str, Tensor]
    variance: float = 0.0


@PARTS["regularizer"].register("kalman-anchor")
@dataclass(frozen=True, kw_only=True)
class KalmanAnchor(Regularizer):
    """After each step, ``momentum`` of what was learnt, the rest of what a filter makes of it."""

    memory: float = option(0.99, low=0, high=1)
    momentum: float = option(0.99, low=0, high=1)
    noise: float = option(0.005, low=0, high=1, open_high=True)

    def prepare(self, learner: LearnerLike) -> Hidden:
        return Hidden({name: p.detach().clone() for name, p in learner.learning.items()})

    @torch.no_grad()
    def after_step(self, state: Hidden, step: Step) -> None:
        learning, source = step.learner.learning, step.learner.source
        noise = min(self.noise * sum(p.numel() for p in learning.values()) / VALUES, 0.999)
        variance = self.memory**2 * state.variance + noise
        kept = max((1 - noise) / (variance + 1 - noise), LEAST)
        kept = 1.0 if kept >= CERTAIN else kept
        state.variance = kept * variance
        for name, parameter in learning.items():
            hidden = torch.lerp(source[name], state.values[name], self.memory)
            state.values[name] = torch.lerp(parameter.detach(), hidden, kept)
            parameter.lerp_(state.values[name], 1 - self.momentum)


CMF = replace(
    ROID,
    name="cmf",
    summary="CMF: ROID anchored by a Kalman filter of the parameters (Lee & Chang 2024)",
    regularizer=KalmanAnchor(),
)
