"""SLR, confidence maximisation and input transformation (Mummadi et al. 2021).

Entropy hardly moves images predicted with confidence. The log-likelihood ratio of a class against
all others does: L = L_div + δ L_conf with, o being the logits, p their softmax and ĉ = argmax p,

    soft (SLR)    L_conf = -Σ_c p_c (o_c - log Σ_{j≠c} exp o_j)
    hard (HLR)    L_conf = -(o_ĉ - log Σ_{j≠ĉ} exp o_j)
    diversity     L_div  = KL(p̄ ‖ uniform),      p̄ ← κ p̄ + (1 - κ) mean of p over the batch

p̄ starts at the uniform distribution; the gradient goes through the batch's share of it. In front of
the network sits a module that learns to undo the shift, the identity to begin with (τ = γ = 1 and
β = 0; γ and β are one number per channel, r is a small network of 3 × 3 convolutions):

    d(x) = γ · (τ x + (1 - τ) r(x)) + β

Scale and shift of the normalisation layers learn with it, but those of the last stages: the ratios
have no bound, and growing logits would lower the loss without other predictions. The paper freezes
the top of each network; here it is the last quarter of the stages, as in SAR (layer4 of a ResNet).
``objective.labels=hard`` gives HLR; ``selector=early-affine`` leaves the module out.

Defaults are the paper's for ImageNet: δ = 0.025, κ = 0.9, Adam at 0.0006, batches of 64.

The model returned has the module as ``acclimate_adapter``, called by a hook before the model's
own ``forward`` (that of its first link, if it is an ``nn.Sequential``); all other keys are those of
the plain model. A wrapper would have changed every key and hidden the attributes of the model, and
no weight of the network can take the module in.

What differs: there is no published code. The size of r is chosen here, three convolutions of 16
channels with group norm and ReLU between them; the module sees normalised images, as the network
does. The target is taken to have all classes equally often, as in the paper's experiments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from acclimate.errors import AcclimateError, unknown_name
from acclimate.methods.sar import EarlyAffine
from acclimate.models.device import floating_dtype
from acclimate.parts.adapters import insert_input_adapter, remove_input_adapter
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.objectives import Objective
from acclimate.parts.optimizers import Adam
from acclimate.parts.regularizers import Regularizer
from acclimate.recipe import Recipe

__all__ = ["SLR", "Diversity", "InputModule", "InputTransformation", "LikelihoodRatio", "log_odds"]

LABELS = ("soft", "hard")


def log_odds(logits: Tensor) -> Tensor:
    """log p_c / (1 - p_c) for every class, with all digits where p_c is near 1.

    >>> log_odds(torch.tensor([[100.0, 0.0]]))
    tensor([[ 100., -100.]])
    """
    top = torch.zeros_like(logits, dtype=torch.bool)
    top.scatter_(1, logits.argmax(dim=1, keepdim=True), value=True)
    # At most half of the probability is on any class but the first, whose rivals are summed up.
    p = logits.softmax(dim=1).masked_fill(top, 0.0)
    rivals = logits.masked_fill(top, -math.inf).logsumexp(dim=1, keepdim=True)
    others = logits.logsumexp(dim=1, keepdim=True) + torch.log1p(-p)
    return logits - torch.where(top, rivals, others)


@PARTS["objective"].register("likelihood-ratio")
@dataclass(frozen=True, kw_only=True)
class LikelihoodRatio(Objective):
    """The negative log-likelihood ratio of the label, soft or hard, against all other classes."""

    labels: str = "soft"
    weight: float = option(0.025, low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels not in LABELS:
            raise unknown_name("kind of labels", self.labels, LABELS)

    def loss(self, state: Any, step: Step) -> Tensor:
        logits = step.student.logits
        odds = log_odds(logits)
        if self.labels == "hard":
            ratio = odds.gather(1, logits.argmax(dim=1, keepdim=True)).squeeze(1)
        else:
            ratio = (logits.softmax(dim=1) * odds).sum(dim=1)
        return -self.weight * ratio


@dataclass
class ClassShares:
    """The running estimate of how often each class is predicted; empty before the first batch."""

    probability: Tensor = field(default_factory=lambda: torch.zeros(0))


@PARTS["regularizer"].register("diversity")
@dataclass(frozen=True, kw_only=True)
class Diversity(Regularizer):
    """KL divergence of a running estimate of the predicted classes from all being equally often."""

    weight: float = option(1.0, low=0)
    momentum: float = option(0.9, low=0, high=1, open_high=True)

    def prepare(self, learner: LearnerLike) -> ClassShares:
        """Nothing predicted yet."""
        return ClassShares()

    def loss(self, state: ClassShares, step: Step) -> Tensor:
        estimate = self._estimate(state, step)
        shares = estimate.clamp_min(torch.finfo(estimate.dtype).tiny)  # log 0 has no slope
        divergence: Tensor = math.log(len(shares)) - torch.special.entr(shares).sum()
        return self.weight * divergence

    def after_step(self, state: ClassShares, step: Step) -> None:
        state.probability = self._estimate(state, step).detach()

    def _estimate(self, state: ClassShares, step: Step) -> Tensor:
        batch = step.student.logits.softmax(dim=1).mean(dim=0)
        unseen = torch.full_like(batch, 1 / len(batch))
        before = state.probability if state.probability.numel() else unseen
        estimate: Tensor = self.momentum * before + (1 - self.momentum) * batch
        return estimate


class InputTransformation(nn.Module):
    """γ · (τ x + (1 - τ) r(x)) + β, the identity until it learns.

    >>> x = torch.rand(2, 3, 8, 8)
    >>> torch.equal(InputTransformation(3, 16, generator=torch.Generator())(x), x)
    True
    """

    def __init__(self, channels: int, width: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.mixing = nn.Parameter(torch.ones(1))
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        self.shift = nn.Parameter(torch.zeros(channels, 1, 1))
        groups = math.gcd(width, 4)
        self.restored = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            nn.GroupNorm(groups, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.GroupNorm(groups, width),
            nn.ReLU(),
            nn.Conv2d(width, channels, 3, padding=1, bias=False),
        )
        for layer in self.restored:
            if isinstance(layer, nn.Conv2d):
                bound = math.sqrt(6 / layer.weight[0].numel())
                draws = torch.rand(layer.weight.shape, generator=generator)
                layer.weight.data.copy_((2 * draws - 1) * bound)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.mixing * x + (1 - self.mixing) * self.restored(x)
        return self.scale * mixed + self.shift


@dataclass
class InputState:
    """The module in front of the network."""

    module: InputTransformation


@PARTS["selector"].register("input-module")
@dataclass(frozen=True, kw_only=True)
class InputModule(EarlyAffine):
    """Scale and shift of the earlier normalisation layers, if any, and a new module before them.

    ``channels`` is how many an image has; None takes it from the model's first convolution.
    """

    changes_architecture = True
    width: int = option(16, low=1)
    channels: int | None = option(None, low=1)

    def check(self, model: nn.Module) -> None:
        self._channels(model)

    def names(self, model: nn.Module) -> list[str]:
        """γ and β of the earlier layers, and the module's own where it is in the model."""
        module = remove_input_adapter(model)  # its layers are none of the network's stages
        chosen = super().names(model)
        if module is None:
            return chosen
        insert_input_adapter(model, module)
        own = {id(p) for p in module.parameters()}
        return chosen + [name for name, p in model.named_parameters() if id(p) in own]

    def stages_frozen(self, stages: int) -> int:
        """Rounded to the nearest: one of three stages stays, or the loss would have no bound."""
        return min(round(self.frozen * stages), stages - 1)

    def extend(self, model: nn.Module, generator: torch.Generator) -> None:
        insert_input_adapter(model, self._fresh(model, generator))

    def prepare(self, learner: LearnerLike) -> InputState:
        """Build the module, or continue with the one of an earlier adaptation."""
        found = remove_input_adapter(learner.model)
        module = self._fresh(learner.model, learner.generator) if found is None else found
        return InputState(cast("InputTransformation", module).requires_grad_(True))

    def parameters(self, state: InputState) -> Mapping[str, nn.Parameter]:
        return dict(state.module.named_parameters())

    def transform(
        self, state: InputState, images: Tensor, weights: Mapping[str, Tensor] | None
    ) -> Tensor:
        shown: Tensor = functional_call(state.module, dict(weights or {}), (images,))
        return shown

    def export(self, state: InputState, learner: LearnerLike) -> None:
        insert_input_adapter(learner.model, state.module)

    def _fresh(self, model: nn.Module, generator: torch.Generator) -> InputTransformation:
        module = InputTransformation(self._channels(model), self.width, generator=generator)
        return module.to(next(model.parameters()).device, floating_dtype(model))

    def _channels(self, model: nn.Module) -> int:
        if self.channels is not None:
            return self.channels
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                return module.in_channels
        raise AcclimateError(
            f"{type(model).__name__} has no convolution that shows how many channels an image has; "
            "say it with selector.channels, or leave the module out with selector=early-affine"
        )


SLR = Recipe(
    name="slr",
    summary="SLR: likelihood ratios, diversity and a module at the input (Mummadi et al. 2021)",
    objective=LikelihoodRatio(),
    selector=InputModule(),
    regularizer=Diversity(),
    optimizer=Adam(lr=0.0006),
    batch_size=64,
)
