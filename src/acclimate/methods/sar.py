"""SAR, stable test-time adaptation in the dynamic wild world (Niu et al., ICLR 2023).

Entropy minimisation from reliable images only, H(p) < E0 = 0.4 log C, towards flat minima, and back
to the source when the model is about to collapse:

    ε = ρ ∇L(θ) / ‖∇L(θ)‖,     θ ← θ - lr · ∇L(θ + ε),     L = mean of H(p) over the reliable

With e the moving average (0.9 old, 0.1 new) of L(θ + ε), the parameters and the optimiser's moments
go back to the beginning when e < e0. The affines of the last blocks, which are sensitive, stay.

Defaults are the paper's for a ResNet-50: SGD with momentum 0.9, rate 0.00025, batches of 64,
ρ = 0.05, e0 = 0.2 for 1,000 classes, scaled with log C for others. Vision transformers take
``optimizer.lr=0.001``. The paper recommends it for group and layer norm; batch norm works too.

What differs:

- The paper freezes the last of four stages of a ResNet and the last three of twelve blocks of a
  transformer, with the norm behind them. Here it is the last quarter of whatever a model's stages
  are, rounded down (:func:`norm_stages`), which gives both; with three stages nothing is frozen.
- The authors' code compares with 0.2 whatever constant is given; as in the text the constant
  counts. As in the code the images are filtered once more at θ + ε, which the text leaves out.
- After a reset the moving average starts anew, as at the beginning; in the code the low average
  that led to one reset is kept, and leads to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.methods.tent import TENT
from acclimate.models.layers import norm_kind
from acclimate.parts.base import PARTS, Closure, LearnerLike, Step, option
from acclimate.parts.filters import EntropyMargin
from acclimate.parts.optimizers import SGD
from acclimate.parts.regularizers import Regularizer, reset_to_source
from acclimate.parts.selectors import NormAffine

__all__ = ["SAR", "EarlyAffine", "Recovery", "SharpnessAware", "norm_stages"]

MOST = 0.8
"""A module with this share of the normalisation layers is what the stages are the children of."""


def norm_stages(model: nn.Module) -> list[list[nn.Module]]:
    """A model's normalisation layers, stage by stage (or block by block) in their order.

    Stages are the children of the module that holds most of the layers; single layers before or
    between them belong to the stage that follows, those behind the last to the last.

    >>> blocks = [nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4)) for _ in range(5)]
    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(*blocks), nn.LayerNorm(4))
    >>> [len(stage) for stage in norm_stages(model)]
    [2, 2, 2, 2, 3]
    """
    groups = [[m for m in child.modules() if norm_kind(m)] for child in model.children()]
    total = sum(map(len, groups))
    stages: list[list[nn.Module]] = []
    for child, norms in zip(model.children(), groups, strict=True):
        inside = len(norms) >= MOST * total and norm_kind(child) is None
        stages += norm_stages(child) if norms and inside else [norms]
    return _without_singles([stage for stage in stages if stage])


def _without_singles(stages: list[list[nn.Module]]) -> list[list[nn.Module]]:
    if not any(len(stage) > 1 for stage in stages):
        return stages  # a plain chain: every layer is a stage
    joined: list[list[nn.Module]] = []
    waiting: list[nn.Module] = []
    for stage in stages:
        waiting = waiting + stage
        if len(stage) > 1:
            joined.append(waiting)
            waiting = []
    joined[-1] += waiting
    return joined


@PARTS["selector"].register("early-affine")
@dataclass(frozen=True, kw_only=True)
class EarlyAffine(NormAffine):
    """Scale and shift of the normalisation layers, but those of the last stages."""

    frozen: float = option(0.25, low=0, high=1, open_high=True)

    def names(self, model: nn.Module) -> list[str]:
        """γ and β of all but the last ``frozen`` share of the stages."""
        stages = norm_stages(model)
        kept = len(stages) - self.stages_frozen(len(stages))
        left_out = {id(p) for stage in stages[kept:] for norm in stage for p in norm.parameters()}
        parameters = dict(model.named_parameters())
        return [name for name in super().names(model) if id(parameters[name]) not in left_out]

    def stages_frozen(self, stages: int) -> int:
        """How many of so many stages stay.

        >>> [EarlyAffine().stages_frozen(stages) for stages in (1, 3, 4, 12)]
        [0, 0, 1, 3]
        """
        return min(int(self.frozen * stages), stages - 1)


@PARTS["optimizer"].register("sam")
@dataclass(frozen=True, kw_only=True)
class SharpnessAware(SGD):
    """SGD with the gradient taken where the loss is highest nearby (Foret et al. 2021)."""

    rho: float = option(0.05, low=0)

    def update(self, state: Any, learner: LearnerLike, closure: Closure) -> Tensor:
        state.zero_grad(set_to_none=True)
        closure()
        climbing = [p for p in learner.learning.values() if p.grad is not None]
        here = [p.detach().clone() for p in climbing]
        with torch.no_grad():
            slopes = [p.grad for p in climbing if p.grad is not None]
            norm = torch.stack([slope.norm() for slope in slopes]).norm()
            for parameter, slope in zip(climbing, slopes, strict=True):
                parameter.add_(slope * (self.rho / (norm + 1e-12)))
        state.zero_grad(set_to_none=True)
        loss = closure()
        with torch.no_grad():
            for parameter, value in zip(climbing, here, strict=True):
                parameter.copy_(value)
        state.step()
        return loss


@dataclass
class LossAverage:
    """The moving average of the loss; not a number before the first."""

    value: float = math.nan


@PARTS["regularizer"].register("recovery")
@dataclass(frozen=True, kw_only=True)
class Recovery(Regularizer):
    """Back to the source when the moving average of the loss falls below ``floor`` · log C."""

    floor: float = option(0.2 / math.log(1000), low=0)
    momentum: float = option(0.9, low=0, high=1)

    def prepare(self, learner: LearnerLike) -> LossAverage:
        return LossAverage()

    def after_step(self, state: LossAverage, step: Step) -> None:
        if step.loss is None:
            return
        loss, old = float(step.loss), state.value
        state.value = loss if math.isnan(old) else self.momentum * old + (1 - self.momentum) * loss
        if state.value < self.floor * math.log(step.student.logits.shape[1]):
            reset_to_source(step.learner)
            state.value = math.nan


SAR = replace(
    TENT,
    name="sar",
    summary="SAR: entropy of reliable images, sharpness-aware, with recovery (Niu et al. 2023)",
    selector=EarlyAffine(),
    filter=EntropyMargin(margin=0.4),
    regularizer=Recovery(),
    optimizer=SharpnessAware(lr=0.00025),
)
