"""Joint training with rotations (Sun et al. 2020), the first half of test-time training.

Its other half, adaptation by the same task, is :mod:`acclimate.methods.ttt`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from acclimate.methods.ttt import QUARTERS, turned
from acclimate.parts.base import option
from acclimate.pretraining.methods import METHODS, Batch, Cropping, Forward

__all__ = ["Ttt"]


@METHODS.register("ttt")
@dataclass(frozen=True, kw_only=True)
class Ttt(Cropping):
    """Classes, and beside them by which quarter of a turn an image was rotated.

    The head for the turns is kept as ``head.safetensors``; the recipe ``ttt`` learns with it.

    Attributes:
        rotation: how much that task counts; 1 as in the paper.
    """

    rotation: float = option(1.0, low=0)

    def heads(self, model: nn.Module, features: int) -> nn.Module:
        return nn.Linear(features, QUARTERS)

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        count, device = len(batch.images), batch.images.device
        quarters = torch.randint(QUARTERS, (count,), generator=batch.generator, device=device)
        # In one pass: batch norm then keeps statistics that hold for upright and turned alike.
        upright, other = (self.cropped(batch.images, batch) for _ in range(2))
        shown = torch.cat([upright, turned(other, quarters)])
        logits, features = forward(batch.normalize(shown))
        classes = functional.cross_entropy(logits[:count].float(), batch.labels)
        turns = functional.cross_entropy(heads(features[count:]).float(), quarters)
        return classes + self.rotation * turns

    def files(self, heads: nn.Module) -> dict[str, dict[str, Tensor]]:
        return {"head.safetensors": heads.state_dict()}
