"""Which images count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from acclimate.parts import PARTS, Part, check_range

if TYPE_CHECKING:
    from acclimate.step import Step

__all__ = ["Confidence", "Everything", "Filter"]


@dataclass(frozen=True, kw_only=True)
class Filter(Part):
    """Which images count, and how much."""


@PARTS["filter"].register("none")
@dataclass(frozen=True, kw_only=True)
class Everything(Filter):
    """Every image counts."""


@PARTS["filter"].register("confidence")
@dataclass(frozen=True, kw_only=True)
class Confidence(Filter):
    """Images whose teacher is surer than a threshold: max_j p^t(j|x) > threshold."""

    threshold: float = 0.5

    def __post_init__(self) -> None:
        check_range(self, "threshold", low=0, high=1)

    def weights(self, state: Any, step: Step) -> Tensor:
        """1 for the sure, 0 for the rest."""
        sure = step.teacher.logits.detach().softmax(dim=1).amax(dim=1)
        return (sure > self.threshold).to(sure.dtype)
