"""RoTTA (Yuan et al. 2023, "Robust Test-Time Adaptation in Dynamic Scenarios").

For streams whose images are neither independent nor of one kind:

- statistics are a running estimate, μ ← 0.95 μ + 0.05 μ_batch, which starts at the source's;
- a memory of N = 64 images holds about as many of each predicted class as of any other. An image
  that is older (age A, in images that came since) and less confident (entropy H of C classes) goes
  first: the larger 1 / (1 + exp(−A/N)) + H / log C;
- of all images in memory the student, on a strongly augmented view, learns the soft label of its
  moving average (momentum 0.999) on the image itself. By cross-entropy, weighted by timeliness
  exp(−A/N) / (1 + exp(−A/N)), and in the normalisation layers only.

The teacher predicts, and is returned. It has statistics of its own, moved by the images in
memory; the student's are moved by the views. Adam at 1e-3 for batches of 64 is the published
setting (for CIFAR-C; there is none for ImageNet).

Other than published: a step is taken for each batch that arrives, rather than for each 64 images,
so small batches take more and (the rate being scaled with the batch size) smaller steps. Both
momenta hold for a step, whatever its batch: one image at a time, statistics and teacher follow 64
times as fast. Views are drawn as :func:`~acclimate.methods.views.jittered` does, without changes of
colour. Networks without batch norm have no statistics to estimate and do the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.methods.memory import Kept, Memory, MemoryState, most_frequent
from acclimate.methods.views import Drawing, Draws, jittered
from acclimate.models.outputs import Outputs
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.normalization import Running
from acclimate.parts.objectives import Objective, tempered_cross_entropy
from acclimate.parts.optimizers import Adam
from acclimate.parts.predictors import TeacherPredictions
from acclimate.parts.teachers import MovingAverage, TeacherWeights
from acclimate.recipe import Recipe

__all__ = ["ROTTA", "AugmentedStudent", "CategoryBalancedMemory", "RobustMovingAverage"]


@PARTS["filter"].register("category-balanced-memory")
@dataclass(frozen=True, kw_only=True)
class CategoryBalancedMemory(Memory):
    """Learn from a memory of recent and confident images, of all classes alike.

    ``timeliness`` and ``uncertainty`` weigh age and entropy when an image has to go.
    """

    timeliness: float = option(1.0, low=0)
    uncertainty: float = option(1.0, low=0)

    def admit(self, state: MemoryState, kept: list[Kept], new: Kept, *, classes: int) -> None:
        """In place of the worst of its class, or of the largest classes while its own has room."""
        rivals = [each for each in kept if each.label == new.label]
        if len(rivals) < self.capacity / classes:
            if len(kept) < self.capacity:
                kept.append(new)
                return
            rivals = most_frequent(kept)
        worst = max(rivals, key=lambda each: self._burden(each, classes))
        if self._burden(worst, classes) > self._burden(new, classes):
            kept.remove(worst)
            kept.append(new)

    def _burden(self, image: Kept, classes: int) -> float:
        age = 1 / (1 + math.exp(-image.age / self.capacity))
        doubt = image.uncertainty / math.log(max(classes, 2))
        return self.timeliness * age + self.uncertainty * doubt

    def weights(self, state: MemoryState, step: Step) -> Tensor:
        """The older an image, the less it counts."""
        return torch.sigmoid(-state.ages.to(step.images) / self.capacity)


@PARTS["objective"].register("augmented-student")
@dataclass(frozen=True, kw_only=True)
class AugmentedStudent(Drawing, Objective):
    """Cross-entropy of the student, on a strongly augmented view, with the teacher's soft label."""

    def views(self, state: Draws, images: Tensor) -> Sequence[Tensor]:
        return [jittered(images, state.generator) if len(images) else images]

    def loss(self, state: Draws, step: Step) -> Tensor:
        """The teacher sees the image itself, and first."""
        label = step.teacher.logits.detach()
        return tempered_cross_entropy(step.student_of(step.views[0]).logits, label)


@dataclass
class RobustWeights(TeacherWeights):
    """The teacher's weights, and its running estimates of the statistics."""

    statistics: dict[str, Tensor]


@PARTS["teacher"].register("robust-moving-average")
@dataclass(frozen=True, kw_only=True)
class RobustMovingAverage(MovingAverage):
    """A moving average whose own running statistics move when it labels, not when it predicts."""

    def prepare(self, learner: LearnerLike) -> RobustWeights:
        return RobustWeights(super().prepare(learner).tensors, dict(learner.statistics.running))

    def outputs(self, state: RobustWeights, step: Step, images: Tensor) -> Outputs:
        """A forward pass with the teacher's weights and statistics."""
        learner, control = step.learner, step.learner.statistics
        if learner.steps == 0:  # the student's may have settled on the images before the first step
            state.statistics.update(control.running)
        students, control.running = control.running, state.statistics
        try:
            with torch.no_grad():
                return learner.forward(images, weights=state.tensors, learning=step.learning)
        finally:
            control.running = students

    def take_over(self, state: RobustWeights, learner: LearnerLike) -> None:
        super().take_over(state, learner)
        learner.statistics.running.update(state.statistics)
        learner.parts["normalization"].export(learner.statistics, learner)


ROTTA = Recipe(
    name="rotta",
    summary="running statistics, a balanced memory, a moving-average teacher (Yuan et al. 2023)",
    objective=AugmentedStudent(),
    normalization=Running(momentum=0.05),
    teacher=RobustMovingAverage(),
    filter=CategoryBalancedMemory(),
    predictor=TeacherPredictions(),
    optimizer=Adam(lr=1e-3),
    batch_size=64,
)
