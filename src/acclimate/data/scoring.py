"""How a model's outputs answer a data set that asks about other classes than the model knows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
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
        there = self.on(logits.device)
        if there.keep is None:
            outputs = logits.topk(min(k, logits.shape[1]), dim=1).indices
        else:
            chosen = logits[:, there.keep].topk(min(k, len(there.keep)), dim=1).indices
            outputs = there.keep[chosen]
        return outputs if there.label_of is None else there.label_of[outputs]

    def on(self, device: torch.device) -> Scoring:
        """The same with its tensors on a device, where they go once and not with every batch.

        >>> scoring = Scoring(keep=torch.tensor([1, 2]))
        >>> scoring.on(torch.device("cpu")) is scoring
        True
        """
        tensors = [tensor for tensor in (self.keep, self.label_of) if tensor is not None]
        return self if all(tensor.device == device for tensor in tensors) else _on(self, device)

    def check(self, outputs: int) -> None:
        """Refuse a model with another number of outputs than this was made for."""
        if self.label_of is not None and len(self.label_of) != outputs:
            raise AcclimateError(
                f"expected a model with {len(self.label_of)} outputs for this data set, got "
                f"{outputs}"
            )
        if self._highest >= outputs:
            raise AcclimateError(
                f"this data set is scored over outputs up to {self._highest}, but the model "
                f"has {outputs}; is this the model for it?"
            )

    @cached_property
    def _highest(self) -> int:
        """The last output that may be the answer, read once: where it lies on a GPU that waits."""
        return -1 if self.keep is None else int(self.keep.max())


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # made in inference, they could not be used in training
def _on(scoring: Scoring, device: torch.device) -> Scoring:
    keep, label_of = (
        None if tensor is None else tensor.to(device) for tensor in (scoring.keep, scoring.label_of)
    )
    return Scoring(keep=keep, label_of=label_of)
