"""The numbers that take no run: counted, known to the library, or simulated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
import torch
from torch import nn

from acclimate.bench.job import UNADAPTED
from acclimate.data.benchmarks.imagenet_d import mapping
from acclimate.errors import AcclimateError, unknown_name
from acclimate.methods.registry import get_recipe
from acclimate.metrics import ALEXNET_CORRUPTIONS, ALEXNET_DOMAINS, DOMAINS, rank_correlations
from acclimate.models.architectures import ARCHITECTURES
from acclimate.models.loading import outline
from acclimate.paper.tables import Cell, Table, find_table
from acclimate.presets import find_preset
from acclimate.theory.boundary import deviation, run_grid
from acclimate.theory.settings import FIGURES, MAIN_FIGURE, Settings

__all__ = ["Computed", "computed", "extra_cells"]

_PRESET = {"optimizer.lr": "lr", "batch_size": "batch_size", "epochs": "epochs"}
_CORRELATIONS = {"IN-C": 0.54, "IN-R": 0.73}
"""Printed in the text (Appendix D): means over the six domains."""
_LOSSES = {"pseudo-labels": True, "entropy": False}


@dataclass(frozen=True, kw_only=True)
class Computed:
    """A number that takes no data.

    Attributes:
        value: None where it could not be had.
        how: "counted" from a model or the label map; "library" where it is a number that the
            library goes by, which compares the library with the paper and measures nothing;
            "simulated" with the two-point model.
        notes: what one should know.
    """

    value: float | None
    how: Literal["counted", "library", "simulated"] = "counted"
    notes: tuple[str, ...] = ()


def computed(cell: Cell) -> Computed | None:
    """The number of a cell that needs no run; None where it does.

    >>> computed(find_table("tbl:groupnorm").cells[0])
    Computed(value=1456858, how='counted', notes=())
    """
    try:
        if cell.metric == "parameters":
            return Computed(value=sum(p.numel() for p in _model(str(cell.model)).parameters()))
        if cell.metric == "adapted parameters":
            return Computed(value=_adapted(cell))
        if cell.metric == "classes":
            sizes = [len(entry.outputs) for entry in mapping()]
            pairs = f"acclimate's own map has {len(sizes)} classes and {sum(sizes)} pairs"
            return Computed(value=sizes.count(int(cell.column)), notes=(pairs,))
        if cell.metric in _PRESET:
            preset = find_preset(str(cell.recipe), model_name=str(cell.model))
            value = None if preset is None else float(getattr(preset, _PRESET[cell.metric]))
            whose = "the library's preset; acclimate tune chooses again"
            return Computed(value=value, how="library", notes=(whose,))
    except AcclimateError as error:
        return Computed(value=None, notes=(str(error).splitlines()[0],))
    if cell.model == "paper:alexnet" and cell.shift is not None:
        stored = {**ALEXNET_CORRUPTIONS, **ALEXNET_DOMAINS}[cell.shift]
        copied = "copied from the paper, not measured: what acclimate's mCE and mDE divide by"
        return Computed(value=stored, how="library", notes=(copied,))
    return None


@cache
def _model(spec: str) -> nn.Module:
    bare = ARCHITECTURES.get(spec.removeprefix("acclimate:"))
    with torch.device("meta") if bare else nullcontext():  # shapes are enough
        return outline(spec).model


def _adapted(cell: Cell) -> int:
    if cell.recipe in (None, UNADAPTED):
        return 0
    model = _model(str(cell.model))
    selected = set(get_recipe(str(cell.recipe), dict(cell.options)).selector.names(model))
    return sum(p.numel() for name, p in model.named_parameters() if name in selected)


def extra_cells(table: Table, *, count: int = 40) -> Iterator[tuple[Cell, Computed]]:
    """What the ``settings`` of a figure name, as cells of their own.

    Args:
        table: of the paper.
        count: temperatures a side of a simulation; the paper's figures have 250, which
            ``acclimate theory`` draws.

    >>> cell, found = next(extra_cells(find_table("fig:theory"), count=8))
    >>> cell.row, found.how
    ('two-point model, pseudo-labels, learning rate 0.1', 'simulated')
    """
    if "theory" in table.settings:
        name, figures = table.settings["theory"], {"main": (MAIN_FIGURE,), **FIGURES}
        if name not in figures:
            raise unknown_name("figure of the theory", name, figures)
        for settings in figures[name]:
            for loss, stop_gradient in _LOSSES.items():
                small = replace(settings, count=count)
                cell = Cell(
                    table=table.label,
                    row=f"two-point model, {loss}, learning rate {settings.lr:g}",
                    column="temperatures that collapse",
                    metric="collapse",
                )
                yield cell, _simulated(small, stop_gradient=stop_gradient)
    if "rank_correlations" in table.settings:
        yield from _correlations(table)


def _simulated(settings: Settings, *, stop_gradient: bool) -> Computed:
    """The share of the grid that collapses."""
    found = run_grid(settings, stop_gradient=stop_gradient)
    off = np.abs(deviation(found.collapsed, settings, stop_gradient=stop_gradient))
    seen = off[~np.isnan(off)]
    grid = f"{settings.count} × {settings.count} temperatures, {settings.steps:,} steps"
    if len(seen):
        grid += f"; the edge is {float(np.median(seen)):.1f} cells off the line (median)"
    flipped = 100 * float(found.flipped.mean())
    return Computed(
        value=100 * float(found.collapsed.mean()),
        how="simulated",
        notes=(
            f"{grid}; acclimate theory draws all 250 × 250",
            f"{flipped:.1f} % end on the wrong side, the steps being too long",
        ),
    )


def _correlations(table: Table) -> Iterator[tuple[Cell, Computed]]:
    source = find_table(table.settings["rank_correlations"])
    columns: dict[str, list[float]] = defaultdict(list)
    for cell in source.cells:
        if cell.published is not None:
            columns[cell.column].append(cell.published)
    domains = {name: columns[name.capitalize()] for name in DOMAINS}
    for name, printed in _CORRELATIONS.items():
        found = rank_correlations(domains, columns[name])
        cell = Cell(
            table=table.label,
            row=f"rank correlation of IN-D with {name}",
            column="mean of domains",
            metric="rank correlation",
            unit="",
            published=printed,
        )
        note = f"from the errors printed in {source.label}, {found.models} models"
        yield cell, Computed(value=found.mean, notes=(note,))
