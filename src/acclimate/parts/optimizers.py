"""How the parameters move. Options are data; the torch optimiser is the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.parts.base import PARTS, Closure, LearnerLike, Part, option

__all__ = ["SGD", "Adam", "Optimizer"]


@dataclass(frozen=True, kw_only=True)
class Optimizer(Part, ABC):
    """How the parameters move.

    ``lr`` holds at the recipe's own batch size and is scaled linearly from there; None leaves it to
    the presets (see :mod:`acclimate.presets`), or 1e-3 where those are not used.
    """

    lr: float | None = option(None, low=0)
    weight_decay: float = option(0.0, low=0)

    @abstractmethod
    def build(self, parameters: Iterable[nn.Parameter], *, lr: float) -> torch.optim.Optimizer:
        """The torch optimiser over these parameters."""

    def prepare(self, learner: LearnerLike) -> torch.optim.Optimizer:
        """Build the torch optimiser over all that learns."""
        return self.build(learner.learning.values(), lr=learner.lr)

    def update(self, state: Any, learner: LearnerLike, closure: Closure) -> Tensor:
        """One gradient, one move."""
        state.zero_grad(set_to_none=True)
        loss = closure()
        state.step()
        return loss


@PARTS["optimizer"].register("sgd")
@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Stochastic gradient descent with momentum."""

    steady = True

    momentum: float = option(0.9, low=0, high=1)
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0:
            raise AcclimateError("nesterov needs momentum: expected momentum > 0, got 0")

    def build(self, parameters: Iterable[nn.Parameter], *, lr: float) -> torch.optim.Optimizer:
        """torch.optim.SGD."""
        return torch.optim.SGD(
            parameters,
            lr=lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )


@PARTS["optimizer"].register("adam")
@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam, with decoupled weight decay."""

    steady = True

    beta1: float = option(0.9, low=0, high=1, open_high=True)
    beta2: float = option(0.999, low=0, high=1, open_high=True)

    def build(self, parameters: Iterable[nn.Parameter], *, lr: float) -> torch.optim.Optimizer:
        """torch.optim.AdamW (Adam itself when the weight decay is 0)."""
        learning = list(parameters)
        return torch.optim.AdamW(
            learning,
            lr=lr,
            betas=(self.beta1, self.beta2),
            weight_decay=self.weight_decay,
            # It counts its steps on the device, where a captured step finds them.
            capturable=bool(learning) and all(p.is_cuda for p in learning),
        )
