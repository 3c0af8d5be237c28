"""COME, test-time adaptation by conservatively minimising entropy (Zhang et al., ICLR 2025).

Softmax cannot say "none of these"; an opinion in the sense of subjective logic can. With C classes
the logits z give each class the belief b_c = exp z_c / (C + Σ exp z), and u = C / (C + Σ exp z)
is left undecided: softmax over (z, log C). The entropy of (b, u) is minimised, and how large the
logits are stays as it is: gradients flow through the direction z / ‖z‖ alone.

``come`` is TENT with that entropy in the place of its own, ``come-sar`` is SAR, whose filter then
asks for an entropy of the opinion below the margin (``filter=opinion-margin``). Any other recipe
takes it with ``objective=opinion-entropy``. Rates, batches and margins are those of TENT and SAR.

What differs: the authors' code has C = 1,000 whatever the data; here it is the number of classes.
As there, 10⁻⁷ is added to each share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from acclimate.methods.sar import SAR
from acclimate.methods.tent import TENT
from acclimate.parts.base import PARTS, Step
from acclimate.parts.filters import EntropyMargin
from acclimate.parts.objectives import Objective

__all__ = ["COME", "COME_SAR", "OpinionEntropy", "OpinionMargin", "opinion_entropy"]

SMALLEST = 1e-7


def opinion_entropy(logits: Tensor) -> Tensor:
    """Entropy of beliefs and uncertainty per image, with a gradient along the logits' direction.

    >>> opinion_entropy(torch.zeros(1, 3)).exp().round(decimals=3)  # 1/2 undecided, 1/6 each
    tensor([3.4640])
    """
    lengths = logits.norm(dim=1, keepdim=True)
    held = logits / lengths.clamp_min(torch.finfo(logits.dtype).tiny) * lengths.detach()
    undecided = torch.full_like(held[:, :1], math.log(held.shape[1]))
    shares = torch.cat([held, undecided], dim=1).softmax(dim=1) + SMALLEST
    return -(shares * shares.log()).sum(dim=1)


@PARTS["objective"].register("opinion-entropy")
@dataclass(frozen=True, kw_only=True)
class OpinionEntropy(Objective):
    """Entropy of the opinion: of the beliefs in each class, and of what is left undecided."""

    steady = True

    def loss(self, state: Any, step: Step) -> Tensor:
        return opinion_entropy(step.student.logits)


@PARTS["filter"].register("opinion-margin")
@dataclass(frozen=True, kw_only=True)
class OpinionMargin(EntropyMargin):
    """Images whose entropy of the opinion lies below ``margin`` · log C."""

    def uncertainty(self, logits: Tensor) -> Tensor:
        return opinion_entropy(logits)


COME = replace(
    TENT,
    name="come",
    summary="COME: entropy of an opinion that may stay undecided (Zhang et al. 2025)",
    objective=OpinionEntropy(),
)
COME_SAR = replace(
    SAR,
    name="come-sar",
    summary="COME in SAR: an opinion's entropy, sharpness-aware (Zhang et al. 2025)",
    objective=OpinionEntropy(),
    filter=OpinionMargin(margin=0.4),
)
