"""Who predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from acclimate.parts.base import PARTS, LearnerLike, Part, Step
from acclimate.parts.teachers import Teacher

__all__ = ["Predictor", "Student", "TeacherPredictions"]


@dataclass(frozen=True, kw_only=True)
class Predictor(Part):
    """Who predicts, and how.

    Subclasses write ``predict``. Those whose predictions a plain model can make write that model in
    ``export``; the others set ``exports = False``, and ``adapt`` takes the predictions from them.
    """

    exports: ClassVar[bool] = True
    asks_teacher: ClassVar[bool] = False
    """Whether it needs one, and so a recipe that learns."""


@PARTS["predictor"].register("student")
@dataclass(frozen=True, kw_only=True)
class Student(Predictor):
    """The model that learns."""

    steady = True


@PARTS["predictor"].register("teacher")
@dataclass(frozen=True, kw_only=True)
class TeacherPredictions(Predictor):
    """The teacher, which is also the model that is returned."""

    asks_teacher: ClassVar[bool] = True

    def predict(self, state: Any, step: Step) -> Tensor:
        """The teacher's logits."""
        return step.teacher.logits

    def export(self, state: Any, learner: LearnerLike) -> None:
        """Put the teacher in the student's place."""
        teacher = learner.parts["teacher"]
        assert isinstance(teacher, Teacher)
        teacher.take_over(learner.states["teacher"], learner)
