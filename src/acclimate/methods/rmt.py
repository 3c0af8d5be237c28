"""RMT, robust mean teacher (Döbler, Marsden & Yang, CVPR 2023), without replay of the source.

All parameters learn, and a projector, from SANTA's contrast (see :mod:`acclimate.methods.santa`,
which took it from here) and a moving average as the teacher (momentum 0.999):

    L = mean of (SCE(p, q) + SCE(p', q)) / 2 + contrast(g(c), g(f), g(f')),

with q the teacher's prediction for the image, p and p' the student's for it and for a view of it,
and SCE half the cross-entropy of each with the other. Predictions are the sum of both networks'
logits.

Defaults are those of the public comparison for ImageNet-C: SGD with momentum 0.9, rate 0.01,
batches of 64. For CIFAR-10 it takes Adam at 0.001 and batches of 200.

What differs: the authors warm the teacher up on 50,000 source images, and learn from a labelled
batch of them in every step; this is their source-free variant, which leaves both out. Prototypes
and views are those of SANTA here. No plain model adds two networks up: ``adapt`` returns the
student, and takes its predictions from the method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from acclimate.methods.roid import symmetric_cross_entropy
from acclimate.methods.santa import PrototypeContrast, Prototypes
from acclimate.models.outputs import Outputs
from acclimate.parts.base import PARTS, Step
from acclimate.parts.optimizers import SGD
from acclimate.parts.predictors import Predictor
from acclimate.parts.selectors import All
from acclimate.parts.teachers import MovingAverage
from acclimate.recipe import Recipe

__all__ = ["RMT", "RobustTeacher", "StudentAndTeacher"]


@PARTS["objective"].register("robust-teacher")
@dataclass(frozen=True, kw_only=True)
class RobustTeacher(PrototypeContrast):
    """Agreement with the teacher, of an image and a view of it, and the contrast."""

    def training(self, state: Prototypes, step: Step, image: Outputs, view: Outputs) -> Tensor:
        label = step.teacher.logits.detach()
        both = [symmetric_cross_entropy(each.logits, label) for each in (image, view)]
        return 0.5 * both[0] + 0.5 * both[1]


@PARTS["predictor"].register("student-and-teacher")
@dataclass(frozen=True, kw_only=True)
class StudentAndTeacher(Predictor):
    """The sum of the student's and the teacher's logits."""

    exports: ClassVar[bool] = False
    asks_teacher: ClassVar[bool] = True

    def predict(self, state: Any, step: Step) -> Tensor:
        return step.student.logits.detach() + step.teacher.logits.detach()


RMT = Recipe(
    name="rmt",
    summary="RMT: a robust mean teacher and source prototypes (Döbler et al. 2023)",
    objective=RobustTeacher(),
    selector=All(),
    teacher=MovingAverage(),
    predictor=StudentAndTeacher(),
    optimizer=SGD(lr=0.01),
    batch_size=64,
)
