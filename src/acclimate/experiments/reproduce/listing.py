"""The paper's tables, a line each: what each needs, and how much of it can be had here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acclimate.experiments.paper import Table
from acclimate.experiments.reproduce.comparison import TablePlan
from acclimate.words import counted

__all__ = ["list_plans", "listed"]

_NAMED = 2  # how many models are named before they are only counted


def list_plans(plans: Sequence[TablePlan]) -> list[str]:
    """One line for each: label, title, cells, how many can run here, what it needs.

    >>> from acclimate.experiments.reproduce import AtHand, find_tables, plan_tables
    >>> print(list_plans(plan_tables(find_tables("tab:mapping"), hand=AtHand()))[0])
    tab:mapping  How many ImageNet ...  12 cells  all counted here  needs nothing
    """
    rows = [
        (plan.table.label, plan.table.title, _count(plan.table), _here(plan), _needs(plan))
        for plan in plans
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    return [
        "  ".join([*(word.ljust(w) for word, w in zip(row[:4], widths, strict=True)), row[4]])
        for row in rows
    ]


def listed(plan: TablePlan) -> dict[str, Any]:
    """The same as plain values, for JSON, with all that is missing."""
    table = plan.table
    missing = dict.fromkeys(str(lack) for cell in plan.cells for lack in cell.lacks)
    return {
        "label": table.label,
        "kind": table.kind,
        "title": table.title,
        "cells": len(table.cells),
        "can_run": plan.can_run,
        "counted": plan.counted,
        "simulated": "theory" in table.settings,
        "datasets": table.datasets,
        "models": table.models,
        "weights": table.weights,
        "missing": list(missing),
    }


def _count(table: Table) -> str:
    return f"{len(table.cells)} cell{'' if len(table.cells) == 1 else 's'}"


def _here(plan: TablePlan) -> str:
    simulated = "theory" in plan.table.settings
    if not plan.cells:
        return "simulated here"
    done = {"can run here": plan.can_run, "counted here": plan.counted}
    for words, number in done.items():
        if number == len(plan.cells):
            return f"all {words}"
    parts = [f"{number} {words}" for words, number in done.items() if number]
    parts = parts or ["none can run here"]
    return ", ".join([*parts, *(["the theory is simulated"] if simulated else [])])


def _needs(plan: TablePlan) -> str:
    unstated = [each for each in plan.cells if any(e.kind == "unstated" for e in each.lacks)]
    stated = [each for each in plan.cells if each not in unstated]
    cells = [each.cell for each in stated if each.jobs or each.lacks]
    run = [cell for cell in cells if not cell.published_only]
    names = sorted({name for cell in run for name in (cell.dataset, cell.scored_on) if name})
    models = sorted({cell.model for cell in run if cell.model})
    shown = models if len(models) <= _NAMED else [f"{len(models)} models"]
    words = "; ".join(", ".join(part) for part in (names, shown) if part)
    weights = len({(cell.model, cell.weights) for cell in run if cell.weights})
    files = f"; {counted(weights, 'weights file')}" if weights else ""
    rest = f"; the settings of {counted(len(unstated), 'cell')} are not stated" if unstated else ""
    return f"needs {words or 'nothing'}{files}{rest}"
