"""Which images count."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate import parallel
from acclimate.parts.base import PARTS, LearnerLike, Part, Step, option
from acclimate.parts.objectives import entropy

__all__ = ["Confidence", "EntropyMargin", "Everything", "Filter", "ReliableDiverse"]


@dataclass(frozen=True, kw_only=True)
class Filter(Part):
    """Which images count, and how much."""


@PARTS["filter"].register("none")
@dataclass(frozen=True, kw_only=True)
class Everything(Filter):
    """Every image counts."""

    steady = True


@PARTS["filter"].register("confidence")
@dataclass(frozen=True, kw_only=True)
class Confidence(Filter):
    """Images whose teacher is more confident than a threshold: max_j p^t(j|x) > threshold."""

    threshold: float = option(0.5, low=0, high=1)

    def weights(self, state: Any, step: Step) -> Tensor:
        """1 for the confident, 0 for the rest."""
        confidence = step.teacher.logits.detach().softmax(dim=1).amax(dim=1)
        return (confidence > self.threshold).to(confidence.dtype)


@PARTS["filter"].register("entropy-margin")
@dataclass(frozen=True, kw_only=True)
class EntropyMargin(Filter):
    """Images whose entropy lies below ``margin`` times the largest one there is, log C."""

    margin: float = option(0.4, low=0)

    def weights(self, state: Any, step: Step) -> Tensor:
        """1 for the reliable, 0 for the rest."""
        logits = step.student.logits.detach()
        return self.reliable(logits).to(logits.dtype)

    def reweigh(self, state: Any, step: Step, weights: Tensor) -> Tensor:
        """Only those that are reliable still."""
        return torch.where(self.reliable(step.student.logits.detach()), weights, 0.0)

    def reliable(self, logits: Tensor) -> Tensor:
        """Which images are below the margin."""
        # NaN counts, or the guard would never see it.
        return ~(self.uncertainty(logits) >= self.threshold(logits))

    def uncertainty(self, logits: Tensor) -> Tensor:
        """What is compared with the margin."""
        return entropy(logits)

    def threshold(self, logits: Tensor) -> float:
        """The margin in nats, for as many classes as there are."""
        return self.margin * math.log(logits.shape[1])


@dataclass
class MeanPrediction:
    """The moving average of the predictions that counted; empty before the first."""

    probability: Tensor = field(default_factory=lambda: torch.zeros(0))


@PARTS["filter"].register("reliable-diverse")
@dataclass(frozen=True, kw_only=True)
class ReliableDiverse(EntropyMargin):
    """Reliable images unlike the average prediction so far, the confident ones counting more.

    An image counts exp(margin - entropy) if its entropy is below the margin (``margin`` · log C)
    and the cosine between its probabilities and their moving average is below ``max_similarity``.
    None takes 0.4 for 10 classes and 0.05 for 1,000, as Niu et al. (2022) do, and a power of the
    number of classes through these two for any other.
    """

    max_similarity: float | None = option(None, low=0, high=1)
    momentum: float = option(0.9, low=0, high=1)

    def prepare(self, learner: LearnerLike) -> MeanPrediction:
        """Nothing seen yet."""
        return MeanPrediction()

    def weights(self, state: MeanPrediction, step: Step) -> Tensor:
        """exp(margin - entropy) for the reliable that bring something new, 0 for the rest."""
        logits = step.student.logits.detach()
        probability, counts = logits.softmax(dim=1), self.reliable(logits)
        if state.probability.numel():
            alike = F.cosine_similarity(probability, state.probability[None], dim=1)
            counts = counts & ~(alike >= self.similarity(logits.shape[1]))
        self._remember(state, probability, counts)
        weights = (self.threshold(logits) - entropy(logits)).exp()
        return torch.where(counts, weights, 0.0)

    def similarity(self, classes: int) -> float:
        """How alike the average a prediction may be.

        >>> [round(ReliableDiverse().similarity(classes), 3) for classes in (2, 10, 100, 1000)]
        [0.827, 0.4, 0.141, 0.05]
        """
        if self.max_similarity is not None:
            return self.max_similarity
        return min(1.0, 0.4 * math.pow(10 / max(classes, 1), math.log10(8) / 2))

    def _remember(self, state: MeanPrediction, probability: Tensor, counts: Tensor) -> None:
        chosen = int(parallel.summed(counts.sum()))
        if not chosen:
            return
        mean = parallel.summed(probability[counts].sum(dim=0)) / chosen
        first = not state.probability.numel()
        state.probability = mean if first else mean.lerp(state.probability, self.momentum)
