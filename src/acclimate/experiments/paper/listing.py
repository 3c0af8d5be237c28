"""The tables of the paper, a line each."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.experiments.paper.records import Table

__all__ = ["listing"]

_NAMED = 2  # how many models are named before they are only counted


def listing(tables: Sequence[Table]) -> list[str]:
    """One line for each: label, title, number of cells, and what it needs.

    >>> from acclimate.experiments.paper import tables
    >>> for line in listing(tables("tab:*alexnet*")):
    ...     print(line)
    tab:alexnet_in_c  AlexNet's errors on ImageNet-C, ...  19 cells  imagenet-c; paper:alexnet
    tab:alexnet-in-d  AlexNet's errors on ImageNet-D, ...   6 cells  imagenet-d; paper:alexnet
    """
    rows = [(t.label, t.title, _count(t), _needs(t)) for t in tables]
    label, title, count = (max((len(row[i]) for row in rows), default=0) for i in range(3))
    return [f"{a:{label}}  {b:{title}}  {c:>{count}}  {d}" for a, b, c, d in rows]


def _count(table: Table) -> str:
    return f"{len(table.cells)} cell{'' if len(table.cells) == 1 else 's'}"


def _needs(table: Table) -> str:
    models = table.models if len(table.models) <= _NAMED else (f"{len(table.models)} models",)
    needs = "; ".join(", ".join(part) for part in (table.datasets, models) if part)
    if table.weights:
        needs += f"; weights to get or train: {len(table.weights)}"
    return needs or "nothing"
