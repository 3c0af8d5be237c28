"""The paper's tables run again: what is needed, what is run, what came of it beside the print."""

from acclimate.paper.comparison import (
    Comparison,
    ComparisonRow,
    TablePlan,
    compare,
    jobs_of,
    plan_tables,
)
from acclimate.paper.estimate import Estimate, estimate
from acclimate.paper.jobs import (
    CellPlan,
    Scope,
    Try,
    find_tables,
    only_cells,
    plan_cell,
    read_choices,
)
from acclimate.paper.measured import Measured, measured
from acclimate.paper.needs import AtHand, Lack

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
