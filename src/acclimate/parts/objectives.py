"""What is minimised: pure functions of logits, one value per image, and parts that name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.parts.base import PARTS, Part, Step, option

__all__ = [
    "CrossEntropy",
    "GeneralizedCrossEntropy",
    "Objective",
    "entropy",
    "generalized_cross_entropy",
    "tempered_cross_entropy",
]


def tempered_cross_entropy(
    student: Tensor,
    teacher: Tensor,
    *,
    student_temperature: float = 1.0,
    teacher_temperature: float = 1.0,
) -> Tensor:
    """Cross-entropy between tempered teacher and tempered student, per image (``eq:lossunified``).

    A teacher temperature of 0 is its limit, the hard label of the largest logit. Gradients flow
    into whatever is not detached: pass ``teacher.detach()`` for pseudo-labels, the same tensor
    twice for entropy minimisation.

    >>> z = torch.tensor([[2.0, 0.0, 0.0]])
    >>> bool(torch.isclose(tempered_cross_entropy(z, z), entropy(z)))
    True
    """
    log_student = F.log_softmax(student / student_temperature, dim=1)
    if teacher_temperature == 0:
        return F.nll_loss(log_student, teacher.argmax(dim=1), reduction="none")
    if teacher is student and teacher_temperature == student_temperature:
        return -(log_student.exp() * log_student).sum(dim=1)
    return -(F.softmax(teacher / teacher_temperature, dim=1) * log_student).sum(dim=1)


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy of the predicted distribution, per image, in nats.

    >>> entropy(torch.zeros(1, 4)).exp()
    tensor([4.])
    """
    return tempered_cross_entropy(logits, logits)


def generalized_cross_entropy(student: Tensor, labels: Tensor, *, q: float) -> Tensor:
    """(1 - p_label^q) / q per image: cross-entropy as q -> 0, mean absolute error at q = 1.

    >>> z = torch.tensor([[1.0, 0.0]])
    >>> generalized_cross_entropy(z, torch.tensor([0]), q=1.0)
    tensor([0.2689])
    """
    log_p = F.log_softmax(student, dim=1).gather(1, labels[:, None]).squeeze(1)
    return -torch.expm1(q * log_p) / q  # expm1 keeps all digits where p is near 1 or q near 0


@dataclass(frozen=True, kw_only=True)
class Objective(Part):
    """What is minimised."""

    classifies: ClassVar[bool] = True
    """Whether the loss is one of the logits; else of what the classifier is fed, and the classifier
    cannot learn from it."""

    def project(
        self, state: Any, features: Tensor, weights: Mapping[str, Tensor] | None
    ) -> Tensor | None:
        """Projections of the features, by the state's own head or with other weights for it."""
        return None


@PARTS["objective"].register("cross-entropy")
@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Objective):
    """The unified form: hard labels (teacher temperature 0), soft ones, entropy (gradient kept)."""

    steady = True

    student_temperature: float = option(1.0, low=0, open_low=True)
    teacher_temperature: float = option(1.0, low=0)
    stop_gradient: bool = True

    def loss(self, state: Any, step: Step) -> Tensor:
        """Cross-entropy of the student against its teacher."""
        teacher = step.teacher.logits
        return tempered_cross_entropy(
            step.student.logits,
            teacher.detach() if self.stop_gradient else teacher,
            student_temperature=self.student_temperature,
            teacher_temperature=self.teacher_temperature,
        )


@PARTS["objective"].register("generalized-cross-entropy")
@dataclass(frozen=True, kw_only=True)
class GeneralizedCrossEntropy(Objective):
    """Robust pseudo-labels: hard labels from the teacher under a loss that bears wrong ones."""

    steady = True

    q: float = option(0.8, low=0, high=1, open_low=True)

    def loss(self, state: Any, step: Step) -> Tensor:
        """GCE of the student against the teacher's hard labels."""
        labels = step.teacher.logits.detach().argmax(dim=1)
        return generalized_cross_entropy(step.student.logits, labels, q=self.q)
