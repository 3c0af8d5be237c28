"""The paper's tables and figures as data: what it prints, and what to run for each number."""

from acclimate.experiments.paper.loading import find_table, tables
from acclimate.experiments.paper.records import Cell, Table

__all__ = ["Cell", "Table", "find_table", "tables"]
