"""Memories of images: learn from a balanced choice of the past instead of from what arrives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from acclimate.parts.base import LearnerLike, Step, option
from acclimate.parts.filters import Filter
from acclimate.parts.objectives import entropy

__all__ = ["Kept", "Memory", "MemoryState", "most_frequent"]


@dataclass
class Kept:
    """An image of the memory: which one, its predicted class and entropy, its age."""

    index: int
    label: int
    uncertainty: float
    age: int = 0


@dataclass
class MemoryState:
    """The images that are remembered, with what is known about each, and how many came before."""

    generator: torch.Generator
    images: Tensor = field(default_factory=lambda: torch.zeros(0))
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    uncertainties: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    ages: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    arrived: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """Of each class, how many were predicted so far."""
    _learner: Any = None
    _logits: Tensor | None = None

    def kept(self) -> list[Kept]:
        """What is remembered, by its place in ``images``."""
        known = (self.labels.tolist(), self.uncertainties.tolist(), self.ages.tolist())
        return [Kept(i, *each) for i, each in enumerate(zip(*known, strict=True))]

    def keep(self, kept: list[Kept], images: Tensor) -> None:
        """Remember these of the images in memory and those that follow them."""
        bank = torch.cat([self.images.to(images), images]) if len(self.images) else images
        # In one layout, whatever that of the batch: a checkpoint keeps none, and sums depend on it.
        chosen = bank[[each.index for each in kept]]
        self.images = chosen.clone(memory_format=torch.contiguous_format)
        self.labels = torch.tensor([each.label for each in kept], dtype=torch.int64)
        self.uncertainties = torch.tensor([each.uncertainty for each in kept], dtype=torch.float64)
        self.ages = torch.tensor([each.age for each in kept], dtype=torch.int64)


@dataclass(frozen=True, kw_only=True)
class Memory(Filter, ABC):
    """Each batch is predicted, its images are offered to the memory, and the memory is learnt from.

    Subclasses say what is kept. One step is taken for each batch that arrives. Images whose logits
    are not finite are not offered: one of them would spoil every step until it is let go.
    """

    capacity: int = option(64, low=1)

    @abstractmethod
    def admit(self, state: MemoryState, kept: list[Kept], new: Kept, *, classes: int) -> None:
        """Put the new image into the list, in another's place perhaps, or leave it out."""

    def prepare(self, learner: LearnerLike) -> MemoryState:
        """An empty memory."""
        return MemoryState(learner.generator, _learner=learner)

    def collect(self, state: MemoryState, images: Tensor) -> Tensor:
        """Predict the images, offer them one by one, and return all that is remembered."""
        state._logits = logits = state._learner.logits(images)
        classes = logits.shape[1]
        if len(state.arrived) == 0:
            state.arrived = torch.zeros(classes, dtype=torch.int64)
        kept, first = state.kept(), len(state.images)
        labels, uncertainties = logits.argmax(dim=1).tolist(), entropy(logits).tolist()
        for i in logits.isfinite().all(dim=1).nonzero().flatten().tolist():
            state.arrived[labels[i]] += 1
            self.admit(state, kept, Kept(first + i, labels[i], uncertainties[i]), classes=classes)
            for each in kept:
                each.age += 1
        state.keep(kept, images)
        return state.images

    def weights(self, state: MemoryState, step: Step) -> Tensor:
        """All that is remembered counts alike; where that is nothing, nothing is learnt."""
        return step.images.new_ones(len(step.images))

    def predict(self, state: MemoryState, step: Step) -> Tensor | None:
        """The logits of what arrived; the step itself is about what is remembered."""
        return state._logits if step.learning else None


def most_frequent(kept: list[Kept]) -> list[Kept]:
    """The images of the class that has most, or of the classes.

    >>> [each.index for each in most_frequent([Kept(0, 7, 0.1), Kept(1, 7, 0.2), Kept(2, 3, 0.3)])]
    [0, 1]
    """
    labels = [each.label for each in kept]
    most = max(labels.count(label) for label in labels)
    return [each for each in kept if labels.count(each.label) == most]
