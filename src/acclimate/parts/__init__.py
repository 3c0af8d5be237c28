"""The parts of a recipe, one file a slot, and all bases to write a method with.

>>> from dataclasses import dataclass
>>> from acclimate import Recipe, parts
>>> @dataclass(frozen=True, kw_only=True)
... class Brier(parts.Objective):
...     def loss(self, state, step):
...         return 1 - step.student.logits.softmax(dim=1).square().sum(dim=1)
>>> Recipe(name="brier", objective=Brier()).objective
Brier()
"""

from acclimate.parts.base import (
    PARTS,
    Closure,
    LearnerLike,
    Part,
    Step,
    check_range,
    option,
)
from acclimate.parts.filters import Confidence, EntropyMargin, Everything, Filter, ReliableDiverse
from acclimate.parts.normalization import BatchStatistics, Mixture, Normalization, Running, Source
from acclimate.parts.objectives import (
    CrossEntropy,
    GeneralizedCrossEntropy,
    Objective,
    entropy,
    generalized_cross_entropy,
    tempered_cross_entropy,
)
from acclimate.parts.optimizers import SGD, Adam, Optimizer
from acclimate.parts.predictors import Predictor, Student, TeacherPredictions
from acclimate.parts.regularizers import NoRegularizer, Regularizer, reset_to_source
from acclimate.parts.selectors import (
    Adapters,
    All,
    Backbone,
    LastLayer,
    Linear,
    NormAffine,
    Selector,
)
from acclimate.parts.statistics import StatisticsControl
from acclimate.parts.teachers import Epoch, Frozen, Instant, MovingAverage, Teacher, TeacherWeights

__all__ = [
    "PARTS",
    "SGD",
    "Adam",
    "Adapters",
    "All",
    "Backbone",
    "BatchStatistics",
    "Closure",
    "Confidence",
    "CrossEntropy",
    "EntropyMargin",
    "Epoch",
    "Everything",
    "Filter",
    "Frozen",
    "GeneralizedCrossEntropy",
    "Instant",
    "LastLayer",
    "LearnerLike",
    "Linear",
    "Mixture",
    "MovingAverage",
    "NoRegularizer",
    "NormAffine",
    "Normalization",
    "Objective",
    "Optimizer",
    "Part",
    "Predictor",
    "Regularizer",
    "ReliableDiverse",
    "Running",
    "Selector",
    "Source",
    "StatisticsControl",
    "Step",
    "Student",
    "Teacher",
    "TeacherPredictions",
    "TeacherWeights",
    "check_range",
    "entropy",
    "generalized_cross_entropy",
    "option",
    "reset_to_source",
    "tempered_cross_entropy",
]
