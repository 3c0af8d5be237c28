"""CoTTA (Wang et al. 2022, "Continual Test-Time Domain Adaptation").

A student learns soft labels y from its moving average θ', by cross-entropy −Σ y log p_θ(x):

    y = softmax z_θ'(x)                     where the source is confident about the batch, the mean
                                            over its images of max p_θ0(x) >= threshold,
    y = softmax 1/N Σ_i z_θ'(view_i(x))     elsewhere, over N = 32 augmented views,

then θ' ← 0.999 θ' + 0.001 θ, and every weight of θ goes back to its source value with probability
0.01. All parameters learn. Predictions are the labels y; the model returned is the plain
teacher.

SGD at 0.01 in batches of 64 is the published setting for ResNet-50 on ImageNet-C. The threshold
belongs to model and data: the authors take 0.92 for CIFAR-10, 0.72 for CIFAR-100 and 0.1 for
ImageNet, where their code also restores with 0.001 only. A lower one costs fewer passes. For CIFAR
they take Adam at 0.001 and batches of 200.

As in that code the batch's mean confidence decides, and logits are averaged; the text speaks of
each image, and of predictions. Other than in it: the cross-entropy is the text's, where the code
for ImageNet adds its mirror image; only passes whose output is used are made; views are drawn as
:func:`~acclimate.methods.views.jittered` does, without changes of colour or blur. Like there, the
source runs with the recipe's statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from acclimate.methods.views import Drawing, Draws, generator_on, jittered
from acclimate.models.outputs import Outputs
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.optimizers import SGD
from acclimate.parts.predictors import TeacherPredictions
from acclimate.parts.regularizers import Regularizer
from acclimate.parts.selectors import All
from acclimate.parts.teachers import MovingAverage, TeacherWeights
from acclimate.recipe import Recipe

__all__ = ["COTTA", "AugmentationAveraged", "StochasticRestore"]


@dataclass
class AveragingWeights(TeacherWeights):
    """The teacher's weights, and the draws for its views."""

    generator: torch.Generator


@PARTS["teacher"].register("augmentation-averaged")
@dataclass(frozen=True, kw_only=True)
class AugmentationAveraged(MovingAverage):
    """A moving average that sees several views of a batch the source is not confident about.

    While nothing is learnt it sees the image alone, as the model that is returned does. Where an
    objective compares features, these are of the image alone, too.
    """

    threshold: float = option(0.92, low=0, high=1)
    views_per_image: int = option(32, low=1)

    def prepare(self, learner: LearnerLike) -> AveragingWeights:
        return AveragingWeights(super().prepare(learner).tensors, learner.generator)

    def outputs(self, state: AveragingWeights, step: Step, images: Tensor) -> Outputs:
        """The mean of the views' logits, or the teacher's own where the source is confident."""
        if not step.learning:
            return super().outputs(state, step, images)
        with torch.no_grad():
            source = step.learner.forward(images, weights=step.learner.source, learning=False)
            confidence = source.logits.softmax(dim=1).amax(dim=1).mean()
            if not bool(confidence < self.threshold):
                return super().outputs(state, step, images)
            total = torch.zeros_like(source.logits)
            for _ in range(self.views_per_image):
                total += super().outputs(state, step, jittered(images, state.generator)).logits
            averaged = total / self.views_per_image
            compared = any("features" in part.needs for part in step.learner.parts.values())
            if compared:
                return replace(super().outputs(state, step, images), logits=averaged)
        return Outputs(averaged)


@PARTS["regularizer"].register("stochastic-restore")
@dataclass(frozen=True, kw_only=True)
class StochasticRestore(Drawing, Regularizer):
    """After each step, every weight goes back to the source with a small probability."""

    probability: float = option(0.01, low=0, high=1)

    @torch.no_grad()
    def after_step(self, state: Draws, step: Step) -> None:
        learning = step.learner.learning
        device = next(iter(learning.values())).device
        draw = generator_on(device, seeded_by=state.generator)
        for name, parameter in learning.items():
            drawn = torch.rand(parameter.shape, generator=draw, device=device)
            restored = (drawn < self.probability).to(parameter.device)
            parameter.copy_(torch.where(restored, step.learner.source[name], parameter))


COTTA = Recipe(
    name="cotta",
    summary="augmentation-averaged moving-average teacher, stochastic restore (Wang et al. 2022)",
    selector=All(),
    teacher=AugmentationAveraged(),
    regularizer=StochasticRestore(),
    predictor=TeacherPredictions(),
    optimizer=SGD(lr=0.01, nesterov=True),
    batch_size=64,
)
