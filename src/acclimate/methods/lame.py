"""LAME: Laplacian-adjusted maximum likelihood (Boudiaf et al. 2022). No parameter moves.

Within a batch, images that are neighbours in feature space should get like predictions. With the
model's probabilities p_i and an affinity w_ij that is 1 for the k nearest neighbours j of i, the
predictions z_i minimise

    sum_i KL(z_i || p_i) - sum_ij w_ij z_i . z_j

over the simplex. The second term is bounded by its tangent, which gives the concave-convex step
z_i <- softmax(log p_i + sum_j w_ij z_j), from z = p on, until none changes any more.

Defaults from the paper's experiments: 5 neighbours by distance of features of length 1, at most 100
steps, batches of 64, the source's statistics. The published code takes the nearest of k + 1 for the
image itself, which it need not be when two images are the same; here an image is left out by its
number, and the predictions rather than the energy decide when to stop. The affinity is not made
symmetric. A batch of one image has no neighbours, and is predicted as the model does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, cdist

from acclimate.parts.base import PARTS, Step, option
from acclimate.parts.normalization import Source
from acclimate.parts.predictors import Predictor
from acclimate.recipe import Recipe

__all__ = ["LAME", "Lame", "agreed", "nearest"]

SETTLED = 1e-6
"""A probability that changes by no more has settled."""


def nearest(features: Tensor, *, k: int) -> Tensor:
    """The k nearest other rows of each row by direction, or as many as there are: N × k indices.

    >>> import torch
    >>> nearest(torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 0.1]]), k=1).flatten()
    tensor([2, 2, 0])
    """
    fine = torch.promote_types(features.dtype, torch.float32)  # a CPU has no distances in half
    unit = F.normalize(features.to(fine), dim=1)
    distances = cdist(unit, unit)
    distances.fill_diagonal_(float("inf"))
    return distances.topk(min(k, len(unit) - 1), dim=1, largest=False).indices


def agreed(logits: Tensor, neighbours: Tensor, *, iterations: int) -> Tensor:
    """Log-probabilities that neighbours agree on as far as the logits let them.

    >>> import torch
    >>> logits = torch.tensor([[0.0, 0.2], [3.0, 0.0]])
    >>> agreed(logits, torch.tensor([[1], [0]]), iterations=100).argmax(dim=1)
    tensor([0, 0])
    """
    log_p = F.log_softmax(logits, dim=1)
    log_z, z = log_p, log_p.exp()
    for _ in range(iterations):
        log_z = F.log_softmax(log_p + z[neighbours].sum(dim=1), dim=1)
        before, z = z, log_z.exp()
        if not ((z - before).abs() > SETTLED).any():
            break
    return log_z


@PARTS["predictor"].register("lame")
@dataclass(frozen=True, kw_only=True)
class Lame(Predictor):
    """The batch's predictions, drawn together between ``neighbours`` nearest neighbours."""

    needs = frozenset({"features"})
    exports: ClassVar[bool] = False

    neighbours: int = option(5, low=1)
    iterations: int = option(100, low=1)

    def predict(self, state: None, step: Step) -> Tensor:
        outputs = step.student
        assert outputs.features is not None
        neighbours = nearest(outputs.features.detach(), k=self.neighbours)
        return agreed(outputs.logits.detach(), neighbours, iterations=self.iterations)


LAME = Recipe(
    name="lame",
    summary="LAME: predictions that neighbours in a batch share (Boudiaf et al. 2022)",
    objective=None,
    normalization=Source(),
    predictor=Lame(),
    batch_size=64,
)
