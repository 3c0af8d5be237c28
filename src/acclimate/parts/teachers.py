"""Who labels. A teacher other than the student is a copy of the parameters that learn, no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from acclimate.models.outputs import Outputs
from acclimate.parts.base import PARTS, LearnerLike, Part, Step, option

__all__ = ["Epoch", "Frozen", "Instant", "MovingAverage", "Teacher", "TeacherWeights"]


@dataclass
class TeacherWeights:
    """The teacher's own values of the parameters that learn."""

    tensors: dict[str, Tensor]
    restored_in_place: ClassVar[bool] = True  # captured forward passes know them by address


@dataclass(frozen=True, kw_only=True)
class Teacher(Part):
    """Who labels."""

    def outputs(self, state: Any, step: Step, images: Tensor) -> Outputs:
        """The teacher's prediction: a forward pass with its own weights, without gradients."""
        with torch.no_grad():
            return step.learner.forward(images, weights=state.tensors, learning=False)

    @torch.no_grad()
    def take_over(self, state: Any, learner: LearnerLike) -> None:
        """Write the teacher into the model, in the student's place."""
        for name, parameter in learner.learning.items():
            parameter.copy_(state.tensors[name])


@PARTS["teacher"].register("instant")
@dataclass(frozen=True, kw_only=True)
class Instant(Teacher):
    """The student itself, now. Costs no forward pass."""

    steady = True

    def outputs(self, state: Any, step: Step, images: Tensor) -> Outputs:
        """The student's own prediction."""
        return step.student_of(images)

    def take_over(self, state: Any, learner: LearnerLike) -> None:
        """Teacher and student are one."""


@PARTS["teacher"].register("frozen")
@dataclass(frozen=True, kw_only=True)
class Frozen(Teacher):
    """The source model's parameters, for ever (with the recipe's statistics)."""

    steady = True

    def prepare(self, learner: LearnerLike) -> TeacherWeights:
        """Remember where the student started."""
        return TeacherWeights({name: p.detach().clone() for name, p in learner.learning.items()})


@PARTS["teacher"].register("epoch")
@dataclass(frozen=True, kw_only=True)
class Epoch(Frozen):
    """A copy of the student, taken anew at the start of every epoch."""

    steady = True

    def start_epoch(self, state: TeacherWeights, learner: LearnerLike) -> None:
        """Catch up with the student."""
        for name, parameter in learner.learning.items():
            state.tensors[name].copy_(parameter.detach())


@PARTS["teacher"].register("moving-average")
@dataclass(frozen=True, kw_only=True)
class MovingAverage(Frozen):
    """An exponential moving average of the student."""

    steady = True

    momentum: float = option(0.999, low=0, high=1)

    def after_step(self, state: TeacherWeights, step: Step) -> None:
        """Move a little towards the student."""
        names = list(state.tensors)
        student = [step.learner.learning[name].detach() for name in names]
        torch._foreach_lerp_([state.tensors[n] for n in names], student, 1 - self.momentum)
