"""A model scored on a data set, shift by shift: plain, or adapted to each shift anew."""

from acclimate.evaluation.benchmark import Report, evaluate_parts
from acclimate.evaluation.forgetting import Forgetting, forgetting
from acclimate.evaluation.parts import Part, dataset_parts, image_parts
from acclimate.evaluation.single import Evaluation, evaluate

__all__ = [
    "Evaluation",
    "Forgetting",
    "Part",
    "Report",
    "dataset_parts",
    "evaluate",
    "evaluate_parts",
    "forgetting",
    "image_parts",
]
