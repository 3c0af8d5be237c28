"""The paper's simple model of stability: why self-learning works, and when it collapses."""

from acclimate.theory.boundary import Collapse, bound_on_student, will_collapse
from acclimate.theory.many_points import ManyPoints, equivalent_teacher, simulate_points
from acclimate.theory.simulation import Simulation, simulate
from acclimate.theory.two_point import TwoPoint

__all__ = [
    "Collapse", "ManyPoints", "Simulation", "TwoPoint", "bound_on_student",
    "equivalent_teacher", "simulate", "simulate_points", "will_collapse",
]  # fmt: skip
