"""The paper's tables run again: what is needed, what is run, what came of it beside the print."""

from acclimate.paper.chosen import shipped_choices, with_shipped
from acclimate.paper.comparison import Comparison, ComparisonRow, compare
from acclimate.paper.estimate import Estimate, estimate
from acclimate.paper.measured import Measured, measured
from acclimate.paper.needs import Available, Lack
from acclimate.paper.plan import (
    CellPlan,
    Scope,
    TablePlan,
    Try,
    jobs_of,
    plan_cell,
    plan_tables,
    read_choices,
)
from acclimate.paper.stored import StoredResults, with_stored
from acclimate.paper.tables import Cell, Table, find_table, find_tables, only_cells, with_models

__all__ = [
    "Available", "Cell", "CellPlan", "Comparison", "ComparisonRow", "Estimate", "Lack",
    "Measured", "Scope", "StoredResults", "Table", "TablePlan", "Try", "compare", "estimate",
    "find_table", "find_tables", "jobs_of", "measured", "only_cells", "plan_cell", "plan_tables",
    "read_choices", "shipped_choices", "with_models", "with_shipped",
    "with_stored",
]  # fmt: skip
