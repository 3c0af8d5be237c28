"""The two-point figures: no number of the paper to compare with, but what a small grid shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from acclimate.errors import unknown_name
from acclimate.theory.boundary import deviation, run_grid
from acclimate.theory.settings import FIGURES, MAIN_FIGURE, Settings

__all__ = ["TheoryRow", "theory_rows"]

_COUNT = 40
"""Temperatures a side; the paper's figures have 250, which ``acclimate theory`` draws."""

_LOSSES = {"pseudo-labels": True, "entropy": False}


@dataclass(frozen=True, kw_only=True)
class TheoryRow:
    """One panel of a figure: the shares of the grid that collapse and flip."""

    row: str
    collapsed: float
    flipped: float
    note: str


def theory_rows(name: str, *, count: int = _COUNT) -> Iterator[TheoryRow]:
    """The panels of a figure by its name in ``Table.settings``, on a small grid.

    >>> row = next(theory_rows("main", count=8))
    >>> row.row
    'two-point model, pseudo-labels, learning rate 0.1'
    """
    figures = {"main": (MAIN_FIGURE,), **FIGURES}
    if name not in figures:
        raise unknown_name("figure of the theory", name, figures)
    for settings in figures[name]:
        small = replace(settings, count=count)
        for words, stop_gradient in _LOSSES.items():
            yield _row(words, small, stop_gradient=stop_gradient)


def _row(words: str, settings: Settings, *, stop_gradient: bool) -> TheoryRow:
    found = run_grid(settings, stop_gradient=stop_gradient)
    off = np.abs(deviation(found.collapsed, settings, stop_gradient=stop_gradient))
    seen = off[~np.isnan(off)]
    middle = float(np.median(seen)) if len(seen) else None
    distance = "" if middle is None else f"; the edge is {middle:.1f} cells off the line (median)"
    grid = f"{settings.count} × {settings.count} temperatures, {settings.steps:,} steps"
    return TheoryRow(
        row=f"two-point model, {words}, learning rate {settings.lr:g}",
        collapsed=100 * float(found.collapsed.mean()),
        flipped=100 * float(found.flipped.mean()),
        note=f"{grid}{distance}; acclimate theory draws all 250 × 250",
    )
