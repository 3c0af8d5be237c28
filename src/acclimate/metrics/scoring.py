"""How a model's outputs answer a data set that asks about other classes than the model knows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = ["Scoring"]


@dataclass(frozen=True, eq=False)
class Scoring:
    """The labels of a data set in terms of a model's outputs.

    Attributes:
        keep: outputs that may be the answer; the others are not asked (ImageNet-R and -A are
            scored over their 200 classes). None is all of them.
        label_of: for each output the label it counts as, -1 for none (ImageNet-D: any of the dog
            breeds is a dog). None: outputs and labels are the same numbers.

    >>> import torch
    >>> logits = torch.tensor([[3.0, 2.0, 1.0]])
    >>> Scoring(keep=torch.tensor([1, 2])).predict(logits)
    tensor([1])
    >>> Scoring(label_of=torch.tensor([-1, 0, 0])).predict(logits)
    tensor([-1])
    """

    keep: Tensor | None = None
    label_of: Tensor | None = None

    def predict(self, logits: Tensor) -> Tensor:
        """The label each row of ``logits`` answers with; -1 where its answer is no label at all."""
        return self.top(logits, 1)[:, 0]

    def top(self, logits: Tensor, k: int) -> Tensor:
        """The labels of the ``k`` largest outputs that may be answers, N × k (fewer if fewer)."""
        self.check(logits.shape[1])
        if self.keep is None:
            outputs = logits.topk(min(k, logits.shape[1]), dim=1).indices
        else:
            keep = self.keep.to(logits.device)
            outputs = keep[logits[:, keep].topk(min(k, len(keep)), dim=1).indices]
        return outputs if self.label_of is None else self.label_of.to(logits.device)[outputs]

    def check(self, outputs: int) -> None:
        """Refuse a model with another number of outputs than this was made for."""
        if self.label_of is not None and len(self.label_of) != outputs:
            raise AcclimateError(
                f"expected a model with {len(self.label_of)} outputs for this data set, got "
                f"{outputs}"
            )
        if self.keep is not None and int(self.keep.max()) >= outputs:
            raise AcclimateError(
                f"this data set is scored over outputs up to {int(self.keep.max())}, but the model "
                f"has {outputs}; is this the model for it?"
            )
