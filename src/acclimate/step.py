"""One step's view of the batch: outputs computed when first asked for, and never twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from acclimate.outputs import Outputs

if TYPE_CHECKING:
    from acclimate.learner import Learner

__all__ = ["Step"]


class Step:
    """A batch and what the student, the teacher and the source say about it.

    Parts read ``step.student``, ``step.teacher`` and ``step.source``; each costs one forward pass
    the first time and nothing after that. With the instant teacher, student and teacher are one.
    ``step.loss`` is what the update returned, for what comes after it; None where nothing counted.
    """

    def __init__(
        self,
        learner: Learner,
        images: Tensor,
        *,
        views: Sequence[Tensor] | None = None,
        learning: bool = True,
    ) -> None:
        self.learner = learner
        self.images = images
        self.views = [images] if views is None else list(views)
        self.learning = learning
        self.loss: Tensor | None = None
        # Kept with their outputs: an id means nothing once its tensor is gone.
        self._student: dict[int, tuple[Tensor, Outputs]] = {}
        self._teacher: dict[int, tuple[Tensor, Outputs]] = {}
        self._source: Outputs | None = None

    @property
    def student(self) -> Outputs:
        """The learning model on the batch, with gradients."""
        return self.student_of(self.images)

    @property
    def teacher(self) -> Outputs:
        """The teacher on the batch."""
        return self.teacher_of(self.images)

    @property
    def source(self) -> Outputs:
        """The unadapted model, with its own statistics, on the batch."""
        if self._source is None:
            self._source = self.learner.source_forward(self.images)
        return self._source

    def student_of(self, view: Tensor) -> Outputs:
        """The learning model on one view."""
        if id(view) not in self._student:
            self._student[id(view)] = view, self.learner.forward(view, learning=self.learning)
        return self._student[id(view)][1]

    def teacher_of(self, view: Tensor) -> Outputs:
        """The teacher on one view."""
        if id(view) not in self._teacher:
            self._teacher[id(view)] = view, self.learner.teacher_forward(self, view)
        return self._teacher[id(view)][1]

    def forget(self) -> None:
        """Drop what depends on the student's parameters, after they moved within one step."""
        self._student.clear()
        self._teacher.clear()
