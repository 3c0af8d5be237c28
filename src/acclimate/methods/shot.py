"""SHOT-IM: information maximisation under a frozen classifier (Liang et al. 2020).

The classifier is the source's hypothesis and stays; all below it learns confident predictions
for each image and diverse ones over all:

    L = mean_i H(p_i) - H(mean_i p_i).

Defaults of the paper: SGD with Nesterov momentum 0.9, weight decay 1e-3, batches of 64, 15 epochs,
rate 1e-3 for the backbone (1e-2 is that of its new bottleneck layer), batch statistics.

What differs: this is the paper's SHOT-IM, without the term of pseudo-labels from clusters. The
source model is taken unchanged: no bottleneck or weight normalisation is added, no label smoothing
is needed in its training. The rate stays the same instead of falling as (1 + 10 t)^-0.75. The
mean prediction is that of the batch, as in the published code; one image has nothing to learn from,
its two terms are one and the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate import parallel
from acclimate.parts.base import PARTS, Step, option
from acclimate.parts.objectives import Objective, entropy
from acclimate.parts.optimizers import SGD
from acclimate.parts.selectors import Backbone
from acclimate.recipe import Recipe

__all__ = ["SHOT_IM", "InformationMaximization", "negative_diversity"]


def negative_diversity(logits: Tensor) -> Tensor:
    """-H of the mean prediction, as one value per image whose mean it is, with its gradient.

    With p that mean, sum_k p_k log p_k is the mean over images of sum_k p_ik log p_k; that
    log p_k moves too adds nothing, since every prediction sums to 1.

    >>> z = torch.tensor([[9.0, 0.0], [0.0, 9.0]])
    >>> negative_diversity(z).mean(), negative_diversity(z[:1]).mean()
    (tensor(-0.6931), tensor(-0.0012))
    """
    p = F.softmax(logits, dim=1)
    count = parallel.summed(torch.tensor(float(len(p)), device=p.device))
    mean = parallel.summed(p.detach().sum(dim=0)) / count
    return (p * mean.clamp_min(torch.finfo(p.dtype).tiny).log()).sum(dim=1)


@PARTS["objective"].register("information-maximization")
@dataclass(frozen=True, kw_only=True)
class InformationMaximization(Objective):
    """Confident predictions, and ``diversity`` times as much that they be different ones."""

    diversity: float = option(1.0, low=0)

    def loss(self, state: Any, step: Step) -> Tensor:
        """Entropy of each prediction minus that of the mean prediction."""
        logits = step.student.logits
        return entropy(logits) + self.diversity * negative_diversity(logits)


SHOT_IM = Recipe(
    name="shot-im",
    summary="SHOT-IM: information maximisation, the classifier frozen (Liang et al. 2020)",
    objective=InformationMaximization(),
    selector=Backbone(),
    optimizer=SGD(lr=1e-3, momentum=0.9, nesterov=True, weight_decay=1e-3),
    epochs=15,
    batch_size=64,
)
