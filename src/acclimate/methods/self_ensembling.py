"""Self-ensembling's loss as adaptation (French et al. 2018; the paper's ``tbl:self-ensembling``).

Training as in "Self-ensembling for visual domain adaptation", without the labelled source: on two
views of each image the student p learns the softmax q of its moving average θ' (momentum 0.99),

    3 · 1/N Σ_i [max q_i > 0.968] · (|p_i − q_i|² / C  +  0.005 · B(p̄)),

where C is the number of classes and B(p̄) = −Σ_c (u log p̄_c + (1 − u) log(1 − p̄_c)), u = 1/C, keeps
the batch's mean prediction p̄ evenly spread. All parameters learn; predictions and the model
returned are the teacher's. With no image above the threshold there is no backward pass.

Views are moved by up to two pixels (TF); ``affine=0.1`` bends them too (TFA), ``flip`` mirrors
them, which digits do not bear; ``pixels=0`` shows the images themselves, to student and teacher
alike (CT), and saves a forward pass. ``confidence=0`` lets every image count (MT without CT); the
ramp that training from scratch puts in its place would make no sense for a trained model.

The paper reports the best of the rates 1e-5, …, 1e-1 and of ten epochs. Here it is Adam at 1e-5 in
batches of 56, with which French et al. train the layers of a ResNet-152 that come pretrained
(VisDA); their small digit networks, trained from scratch, learn at 1e-3 in batches of 256.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from acclimate.methods.views import Drawing, Draws, moved
from acclimate.parts.base import PARTS, Step, option
from acclimate.parts.objectives import Objective
from acclimate.parts.optimizers import Adam
from acclimate.parts.predictors import TeacherPredictions
from acclimate.parts.selectors import All
from acclimate.parts.teachers import MovingAverage
from acclimate.recipe import Recipe

__all__ = ["SELF_ENSEMBLING", "Ensembling", "confident", "disagreement", "unevenness"]


def disagreement(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared difference between two predicted distributions, per image.

    >>> import torch
    >>> disagreement(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor([1.])
    """
    return (student - teacher).square().mean(dim=1)


def unevenness(probabilities: Tensor) -> Tensor:
    """Binary cross-entropy of a batch's mean prediction with even use, added up over the classes.

    >>> import torch
    >>> even, alike = torch.full((4, 2), 0.5), torch.tensor([[0.9, 0.1]] * 4)
    >>> bool(unevenness(even) < unevenness(alike))
    True
    """
    mean = probabilities.mean(dim=0).clamp(1e-6, 1 - 1e-6)
    even = 1 / len(mean)
    # By hand: torch refuses its binary cross-entropy in mixed precision.
    return -(even * mean.log() + (1 - even) * (1 - mean).log()).sum()


def confident(teacher: Tensor, confidence: float) -> Tensor:
    """1 for each distribution whose largest probability is above ``confidence``, 0 for the rest.

    >>> import torch
    >>> confident(torch.tensor([[0.99, 0.01], [0.6, 0.4]]), 0.968)
    tensor([1., 0.])
    """
    return (teacher.amax(dim=1) > confidence).to(teacher.dtype)


@PARTS["objective"].register("self-ensembling")
@dataclass(frozen=True, kw_only=True)
class Ensembling(Drawing, Objective):
    """Squared difference from a confident teacher on another view, and even use of classes."""

    confidence: float = option(0.968, low=0, high=1, open_high=True)
    weight: float = option(3.0, low=0)
    balance: float = option(0.005, low=0)
    pixels: float = option(2.0, low=0)
    affine: float = option(0.0, low=0)
    flip: bool = False

    def views(self, state: Draws, images: Tensor) -> Sequence[Tensor]:
        if not (self.pixels or self.affine or self.flip):
            return [images, images]
        return [
            moved(images, state.generator, flip=self.flip, affine=self.affine, pixels=self.pixels)
            for _ in range(2)
        ]

    def weights(self, state: Draws, step: Step) -> Tensor:
        return confident(self._teacher(step), self.confidence)

    def loss(self, state: Draws, step: Step) -> Tensor:
        """Both terms; the mean is over all images, not over those that count."""
        student, teacher = step.student_of(step.views[0]).logits.softmax(dim=1), self._teacher(step)
        share = confident(teacher, self.confidence).mean()
        terms = disagreement(student, teacher) + self.balance * unevenness(student)
        return self.weight * share * terms

    def _teacher(self, step: Step) -> Tensor:
        return step.teacher_of(step.views[1]).logits.detach().softmax(dim=1)


SELF_ENSEMBLING = Recipe(
    name="self-ensembling",
    summary="squared difference from a confident mean teacher on two views (French et al. 2018)",
    objective=Ensembling(),
    selector=All(),
    teacher=MovingAverage(momentum=0.99),
    predictor=TeacherPredictions(),
    optimizer=Adam(lr=1e-5),
    batch_size=56,
    epochs=10,
)
