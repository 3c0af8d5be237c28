"""Many runs: a plan makes jobs, a store keeps their results, queries make tables of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acclimate._lazy import imported_when_used
from acclimate.bench.job import Job, Weights
from acclimate.bench.record import Record, Result
from acclimate.bench.store import Added, Condition, Store, conditions, export
from acclimate.bench.table import Cell, Table, corruption_table, pivot

if TYPE_CHECKING:
    from acclimate.bench.choices import Choices, chosen_jobs, read_choices
    from acclimate.bench.engines import Engine, InlineEngine, ProcessEngine, WorkerSettings
    from acclimate.bench.plan import Plan
    from acclimate.bench.selection import Choice, choose
    from acclimate.bench.sweep import Outcome, run_jobs, run_plan
    from acclimate.bench.worker import Worker

# What plans, chooses and runs needs torch; stores and tables above do without.
_HOME = {
    "Choice": "selection",
    "Choices": "choices",
    "Engine": "engines",
    "InlineEngine": "engines",
    "Outcome": "sweep",
    "Plan": "plan",
    "ProcessEngine": "engines",
    "Worker": "worker",
    "WorkerSettings": "engines",
    "choose": "selection",
    "chosen_jobs": "choices",
    "read_choices": "choices",
    "run_jobs": "sweep",
    "run_plan": "sweep",
}

__all__ = [
    "Added",
    "Cell",
    "Choice",
    "Choices",
    "Condition",
    "Engine",
    "InlineEngine",
    "Job",
    "Outcome",
    "Plan",
    "ProcessEngine",
    "Record",
    "Result",
    "Store",
    "Table",
    "Weights",
    "Worker",
    "WorkerSettings",
    "choose",
    "chosen_jobs",
    "conditions",
    "corruption_table",
    "export",
    "pivot",
    "read_choices",
    "run_jobs",
    "run_plan",
]

__getattr__, __dir__ = imported_when_used(__name__, _HOME)
