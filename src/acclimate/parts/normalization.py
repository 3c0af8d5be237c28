"""Where batch-norm statistics come from: the source, the batch, a mixture, a running estimate.

All four are one formula, ``weight · batch + (1 - weight) · prior``, with weight 1 (batch), 0
(source) or between; the prior is the source's statistics or, for the running estimate, what was
seen so far (see :mod:`acclimate.parts.statistics`).

Only batch norm has statistics to choose. Group, layer and instance norm take theirs from the image
(an instance norm that tracks statistics keeps the source's), and dropout and stochastic depth stay
off: the model is in ``eval()`` but for its batch-norm layers.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from acclimate.errors import AcclimateWarning
from acclimate.models.layers import batch_norm_layers
from acclimate.parts.base import PARTS, LearnerLike, Part, option
from acclimate.parts.statistics import StatisticsControl

__all__ = [
    "BatchStatistics",
    "Mixture",
    "Normalization",
    "Running",
    "Source",
]


FALLBACK_PRIOR = 16.0
"""Strength of the source prior when a batch is too small for statistics (Schneider et al. 2020)."""


@dataclass(frozen=True, kw_only=True)
class Normalization(Part, ABC):
    """Where the statistics come from."""

    adapts: ClassVar[bool] = True
    exports: ClassVar[bool] = True
    """Whether plain batch norm, with other statistics, does the same."""

    @abstractmethod
    def batch_weight(self, images: int) -> float:
        """The share of the batch's own statistics for a batch of this many images."""

    def prepare(self, learner: LearnerLike) -> StatisticsControl:
        """Find the layers."""
        return StatisticsControl(batch_norm_layers(learner.model))

    def apply(self, state: StatisticsControl, images: int, *, learning: bool) -> None:
        """Set the layers for a forward pass over this many images."""
        state.use(self.batch_weight(images))

    def export_weight(self, batch_size: int) -> float:
        """The share of the target's pooled statistics in the model that is returned."""
        return self.batch_weight(batch_size)

    def settling_passes(self, batches: int) -> int:
        """How many passes over the images it takes before the statistics are theirs."""
        return 0


@PARTS["normalization"].register("source")
@dataclass(frozen=True, kw_only=True)
class Source(Normalization):
    """Leave the statistics alone, as the paper does for EfficientNet-L2."""

    steady = True

    adapts = False

    def batch_weight(self, images: int) -> float:
        """None of the batch."""
        return 0.0


@PARTS["normalization"].register("batch")
@dataclass(frozen=True, kw_only=True)
class BatchStatistics(Normalization):
    """The statistics of the current batch.

    One image has none worth the name: a batch of one is normalised with a mixture of its own and
    the source's statistics, the latter counting as 16 images.
    """

    steady = True

    def batch_weight(self, images: int) -> float:
        """All of the batch, from two images on."""
        return 1.0 if images > 1 else 1 / (1 + FALLBACK_PRIOR)

    def apply(self, state: StatisticsControl, images: int, *, learning: bool) -> None:
        """Set the layers; say so when the batch is too small."""
        if images == 1 and state.layers:
            warnings.warn(
                "a batch of one image has no batch statistics; its own are mixed with the source's "
                f"(1 : {FALLBACK_PRIOR:g})",
                AcclimateWarning,
                stacklevel=2,
            )
        super().apply(state, images, learning=learning)


@PARTS["normalization"].register("mixture")
@dataclass(frozen=True, kw_only=True)
class Mixture(Normalization):
    """Source statistics worth ``prior`` images mixed with the batch's (Schneider et al. 2020)."""

    steady = True

    prior: float = option(16.0, low=0)

    def batch_weight(self, images: int) -> float:
        """n / (N + n)."""
        return images / (self.prior + images)


@PARTS["normalization"].register("running")
@dataclass(frozen=True, kw_only=True)
class Running(Normalization):
    """A running estimate that starts at the source and moves towards each batch by ``momentum``.

    ``adapt`` lets it settle on the images before anything is learnt; the model that is returned
    holds the estimate itself.
    """

    momentum: float = option(0.1, low=0, high=1, open_low=True)

    def batch_weight(self, images: int) -> float:
        """The momentum, whatever the batch size."""
        return self.momentum

    def prepare(self, learner: LearnerLike) -> StatisticsControl:
        """Start the estimate at the source."""
        control = super().prepare(learner)
        for name, layer in control.layers.items():
            assert layer.running_mean is not None
            assert layer.running_var is not None
            control.running[f"{name}.mean"] = layer.running_mean.clone()
            control.running[f"{name}.var"] = layer.running_var.clone()
        return control

    def apply(self, state: StatisticsControl, images: int, *, learning: bool) -> None:
        """Only the student's own passes move the estimate; all others read what it is then."""
        state.use(self.momentum if learning else 0.0, update_running=learning)

    def export_weight(self, batch_size: int) -> float:
        """Nothing is pooled."""
        return 0.0

    def settling_passes(self, batches: int) -> int:
        """Enough for the source to count less than 5 %."""
        needed = math.log(0.05) / math.log(1 - self.momentum) if self.momentum < 1 else 1
        return math.ceil(needed / batches)

    def export(self, state: StatisticsControl, learner: LearnerLike) -> None:
        """Write the estimate into the model."""
        for name, layer in state.layers.items():
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.copy_(state.running[f"{name}.mean"])
            layer.running_var.copy_(state.running[f"{name}.var"])
