"""Many runs: a plan makes jobs, a store keeps their results, queries make tables of them."""

from acclimate.experiments._conditions import Condition, conditions
from acclimate.experiments.export import export
from acclimate.experiments.job import Job, Weights
from acclimate.experiments.plan import Plan
from acclimate.experiments.query import Cell, Table, corruption_table, pivot
from acclimate.experiments.result import Result
from acclimate.experiments.store import Added, Store

__all__ = [
    "Added",
    "Cell",
    "Condition",
    "Job",
    "Plan",
    "Result",
    "Store",
    "Table",
    "Weights",
    "conditions",
    "corruption_table",
    "export",
    "pivot",
]
