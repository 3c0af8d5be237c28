"""The paper's tables run again: what is needed, what is run, what came of it beside the print."""

from acclimate.experiments.reproduce.at_hand import AtHand
from acclimate.experiments.reproduce.cell_jobs import CellPlan, Try, plan_cell
from acclimate.experiments.reproduce.choice import read_choices
from acclimate.experiments.reproduce.comparison import (
    Comparison,
    TablePlan,
    compare,
    jobs_of,
    plan_tables,
)
from acclimate.experiments.reproduce.comparison_row import ComparisonRow
from acclimate.experiments.reproduce.estimate import Estimate, estimate
from acclimate.experiments.reproduce.measured import Measured, measured
from acclimate.experiments.reproduce.names import find_tables, only_cells
from acclimate.experiments.reproduce.needs import Lack
from acclimate.experiments.reproduce.scope import Scope

__all__ = [
    "AtHand",
    "CellPlan",
    "Comparison",
    "ComparisonRow",
    "Estimate",
    "Lack",
    "Measured",
    "Scope",
    "TablePlan",
    "Try",
    "compare",
    "estimate",
    "find_tables",
    "jobs_of",
    "measured",
    "only_cells",
    "plan_cell",
    "plan_tables",
    "read_choices",
]
