"""CoTTA (Wang et al. 2022, "Continual Test-Time Domain Adaptation").

A student learns soft labels y from its moving average θ', by cross-entropy −Σ y log p_θ(x):

    y = p_θ'(x)                       where the source is confident, max p_θ0(x) >= threshold,
    y = 1/N Σ_i p_θ'(view_i(x))       elsewhere, over N = 32 augmented views,

then θ' ← 0.999 θ' + 0.001 θ, and every weight of θ goes back to its source value with probability
0.01. All parameters learn. Predictions are the labels y; the model returned is the plain
teacher.

SGD at 0.01 in batches of 64 is the published setting for ResNet-50 on ImageNet-C. The threshold
belongs to model and data: the authors take 0.92 for CIFAR-10, 0.72 for CIFAR-100 and 0.1 for
ImageNet, where their code also restores with 0.001 only. A lower one costs fewer passes. For CIFAR
they take Adam at 0.001 and batches of 200.

Other than in that code: confidence is a matter of each image, not of the batch's mean; views are
averaged as probabilities, not as logits; the cross-entropy is the text's, where the code for
ImageNet adds its mirror image; only passes whose output is used are made; views are drawn as
:func:`~acclimate.methods.views.jittered` does, without changes of colour or blur. Like there, the
source runs with the recipe's statistics.
"""

from __future__ import annotations

import math
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

__all__ = ["COTTA", "AugmentationAveraged", "StochasticRestore", "averaged"]


def averaged(logits: list[Tensor]) -> Tensor:
    """The logarithm of the mean of several predictions: logits of their mixture.

    >>> averaged([torch.tensor([[0.0, 100.0]]), torch.tensor([[100.0, 0.0]])]).exp()
    tensor([[0.5000, 0.5000]])
    """
    logs = torch.stack([each.log_softmax(dim=1) for each in logits])
    return logs.logsumexp(dim=0) - math.log(len(logits))


@dataclass
class AveragingWeights(TeacherWeights):
    """The teacher's weights, and the draws for its views."""

    generator: torch.Generator


@PARTS["teacher"].register("augmentation-averaged")
@dataclass(frozen=True, kw_only=True)
class AugmentationAveraged(MovingAverage):
    """A moving average that sees several views of each image the source is not confident about.

    While nothing is learnt it sees the image alone, as the model that is returned does. Where an
    objective compares features, these are of the image alone, too.
    """

    threshold: float = option(0.92, low=0, high=1)
    views_per_image: int = option(32, low=1)

    def prepare(self, learner: LearnerLike) -> AveragingWeights:
        return AveragingWeights(super().prepare(learner).tensors, learner.generator)

    def outputs(self, state: AveragingWeights, step: Step, images: Tensor) -> Outputs:
        """Logits of the averaged labels, or the teacher's own where the source is confident."""
        if not step.learning:
            return super().outputs(state, step, images)
        with torch.no_grad():
            source = step.learner.forward(images, weights=step.learner.source, learning=False)
            doubtful = source.logits.softmax(dim=1).amax(dim=1) < self.threshold
            # Only passes that some image needs are made.
            found, own = torch.empty_like(source.logits), None
            compared = any("features" in part.needs for part in step.learner.parts.values())
            if compared or not bool(doubtful.all()):
                own = super().outputs(state, step, images)
                found = own.logits.log_softmax(dim=1)
            if bool(doubtful.any()):
                seen = []
                for _ in range(self.views_per_image):
                    view = jittered(images, state.generator)
                    seen.append(super().outputs(state, step, view).logits)
                found = torch.where(doubtful[:, None], averaged(seen), found)
        return Outputs(found) if own is None else replace(own, logits=found)


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
