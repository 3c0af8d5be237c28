"""Conjugate pseudo-labels (Goyal et al., NeurIPS 2022): adapt with what the model was trained with.

A training loss of the form ℓ(h, y) = f(h) - yᵀg(h) has a label ŷ(h) at which h is stationary,
∇f(h) = Dg(h)ᵀ ŷ. The unsupervised loss is the training loss at this label, f(h) - ŷ(h)ᵀ g(h), with
gradients through the label:

    cross-entropy    ŷ = softmax(h) = p            the entropy of p
    poly             ŷ ∝ p / (1 + ε p)             logsumexp(h) - ŷᵀ(h - ε (1 - p))
    squared          ŷ = h                         -½ ‖h‖²

PolyLoss is cross-entropy + ε (1 - p_y). The paper solves (I + ε (diag p - p pᵀ)) ŷ = p for each
image, C × C; by the Sherman-Morrison formula the solution is the line above, at no cost.

``trained_with`` is the loss the model was trained with, which only you can know. For cross-entropy,
by far the most usual, this is TENT with a temperature. ε is the training's own; 8 is what public
code takes on ImageNet, 6 on CIFAR-10. The paper searches rate and temperature for every data set;
the defaults are TENT's (SGD with momentum 0.9, 0.00025, batches of 64).

What differs: nothing in the formulas. The authors' code predicts a batch after learning from it;
here, as everywhere, it is before (``Stream(..., predictions="after")`` is theirs). The conjugate of
the squared loss has no lower bound; choose it for models trained that way only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from acclimate.errors import unknown_name
from acclimate.methods.tent import TENT
from acclimate.parts.base import PARTS, Step, option
from acclimate.parts.objectives import Objective, entropy

__all__ = ["CONJUGATE", "Conjugate", "poly_conjugate", "squared_conjugate"]

LOSSES = ("cross-entropy", "poly", "squared")


def poly_conjugate(logits: Tensor, *, epsilon: float) -> Tensor:
    """PolyLoss at its conjugate label, per image; the entropy where ``epsilon`` is 0.

    >>> import torch
    >>> z = torch.tensor([[1.0, 0.0, 2.0]])
    >>> bool(torch.isclose(poly_conjugate(z, epsilon=0.0), entropy(z)))
    True
    """
    p = logits.softmax(dim=1)
    unscaled = p / (1 + epsilon * p)
    label = unscaled / unscaled.sum(dim=1, keepdim=True)
    return logits.logsumexp(dim=1) - (label * (logits - epsilon * (1 - p))).sum(dim=1)


def squared_conjugate(outputs: Tensor) -> Tensor:
    """Half the squared distance at its conjugate label, less what no label changes: -½ ‖h‖².

    >>> import torch
    >>> squared_conjugate(torch.tensor([[1.0, 2.0]]))
    tensor([-2.5000])
    """
    return -outputs.square().sum(dim=1) / 2


@PARTS["objective"].register("conjugate")
@dataclass(frozen=True, kw_only=True)
class Conjugate(Objective):
    """The conjugate of the loss the model was trained with: cross-entropy, poly or squared."""

    trained_with: str = "cross-entropy"
    epsilon: float = option(8.0, low=0)
    temperature: float = option(1.0, low=0, open_low=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trained_with not in LOSSES:
            raise unknown_name("training loss", self.trained_with, LOSSES)

    def loss(self, state: Any, step: Step) -> Tensor:
        logits = step.student.logits / self.temperature
        if self.trained_with == "poly":
            return poly_conjugate(logits, epsilon=self.epsilon)
        return (
            entropy(logits) if self.trained_with == "cross-entropy" else squared_conjugate(logits)
        )


CONJUGATE = replace(
    TENT,
    name="conjugate",
    summary="conjugate pseudo-labels of the training's own loss (Goyal et al. 2022)",
    objective=Conjugate(),
)
