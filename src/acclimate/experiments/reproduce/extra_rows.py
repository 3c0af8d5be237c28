"""What figures show beside their cells, and takes no data: simulations, rank correlations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from acclimate.experiments.paper import Table, find_table
from acclimate.experiments.reproduce.comparison_row import ComparisonRow
from acclimate.experiments.reproduce.theory_rows import theory_rows
from acclimate.metrics import DOMAINS, rank_correlations

__all__ = ["extra_rows"]

_CORRELATIONS = {"IN-C": 0.54, "IN-R": 0.73}
"""Printed in the text (Appendix D): means over the six domains."""


def extra_rows(table: Table) -> Iterator[ComparisonRow]:
    """Rows for what a figure's ``settings`` name."""
    if "theory" in table.settings:
        yield from _simulated(table)
    if "rank_correlations" in table.settings:
        yield from _correlations(table)


def _simulated(table: Table) -> Iterator[ComparisonRow]:
    for found in theory_rows(table.settings["theory"]):
        flipped = f"{found.flipped:.1f} % end on the wrong side, the steps being too long"
        yield ComparisonRow(
            table=table.label,
            row=found.row,
            column="temperatures that collapse",
            metric="collapse",
            measured=found.collapsed,
            status="simulated",
            notes=(found.note, flipped),
        )


def _correlations(table: Table) -> Iterator[ComparisonRow]:
    source = find_table(table.settings["rank_correlations"])
    columns: dict[str, list[float]] = defaultdict(list)
    for cell in source.cells:
        if cell.published is not None:
            columns[cell.column].append(cell.published)
    domains = {name: columns[name.capitalize()] for name in DOMAINS}
    for name, printed in _CORRELATIONS.items():
        found = rank_correlations(domains, columns[name])
        yield ComparisonRow(
            table=table.label,
            row=f"rank correlation of IN-D with {name}",
            column="mean of domains",
            metric="rank correlation",
            unit="",
            published=printed,
            measured=found.mean,
            status="counted",
            notes=(f"from the errors printed in {source.label}, {found.models} models",),
        )
