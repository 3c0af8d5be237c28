"""The numbers that take no run: counted, known to the library, or simulated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import nn

from acclimate.bench.job import UNADAPTED
from acclimate.data.benchmarks.imagenet_d import label_map
from acclimate.errors import AcclimateError, unknown_name
from acclimate.methods.registry import get_recipe
from acclimate.metrics import ALEXNET_CORRUPTIONS, ALEXNET_DOMAINS, DOMAINS, rank_correlations
from acclimate.models.architectures import ARCHITECTURES
from acclimate.models.checkpoints import checkpoints
from acclimate.models.loading import outline
from acclimate.paper.measured import Measured
from acclimate.paper.tables import Cell, Table, find_table
from acclimate.presets import find_preset
from acclimate.theory.boundary import deviation, run_grid
from acclimate.theory.settings import FIGURES, MAIN_FIGURE, METHODS, Settings

__all__ = ["computed", "extra_cells"]

_PRESET = {"optimizer.lr": "lr", "batch_size": "batch_size", "epochs": "epochs"}
_CORRELATIONS = {"IN-C": 0.54, "IN-R": 0.73}
"""Printed in the text (Appendix D): means over the six domains."""


def computed(cell: Cell) -> Measured | None:
    """The number of a cell that needs no run; None where it does.

    >>> computed(find_table("tbl:groupnorm").cells[0]).value
    1456858
    """
    model, recipe = str(cell.model), str(cell.recipe)
    try:
        if cell.metric == "parameters":
            return _counted(sum(p.numel() for p in _model(model).parameters()))
        if cell.metric == "adapted parameters":
            if cell.recipe in (None, UNADAPTED):
                return _counted(0)
            selector = get_recipe(recipe, dict(cell.options)).selector
            named = dict(_model(model).named_parameters())
            selected = set(selector.names(_model(model)))
            return _counted(sum(p.numel() for name, p in named.items() if name in selected))
        if cell.metric == "classes":
            sizes = [len(entry.outputs) for entry in label_map().classes]
            pairs = f"the released map has {len(sizes)} classes and {sum(sizes)} pairs"
            return _counted(sizes.count(int(cell.column)), pairs)
        if cell.metric in _PRESET:
            preset = find_preset(recipe, model_name=model)
            value = None if preset is None else float(getattr(preset, _PRESET[cell.metric]))
            whose = "the library's preset; acclimate tune chooses again"
            return Measured(value=value, how="library", notes=(whose,))
    except AcclimateError as error:
        return _counted(None, str(error).splitlines()[0])
    if cell.model == "paper:alexnet" and cell.shift is not None:
        stored = {**ALEXNET_CORRUPTIONS, **ALEXNET_DOMAINS}[cell.shift]
        copied = "copied from the paper, not measured: what acclimate's mCE and mDE divide by"
        return Measured(value=stored, how="library", notes=(copied,))
    return None


def _counted(value: float | None, *notes: str) -> Measured:
    return Measured(value=value, how="counted", notes=notes)


@cache
def _model(spec: str) -> nn.Module:
    trained = checkpoints().get(name := spec.removeprefix("acclimate:"))
    name = name if trained is None else trained.architecture
    if name in ARCHITECTURES:
        with torch.device("meta"):  # shapes are enough
            return ARCHITECTURES[name](classes=10)
    return outline(spec).model


def extra_cells(table: Table, *, count: int = 40) -> Iterator[tuple[Cell, Measured]]:
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
            for method, stop_gradient in METHODS.items():
                cell = Cell(
                    table=table.label,
                    row=f"two-point model, {method}, learning rate {settings.lr:g}",
                    column="temperatures that collapse",
                    metric="collapse",
                )
                yield cell, _simulated(replace(settings, count=count), stop_gradient=stop_gradient)
    if "rank_correlations" in table.settings:
        yield from _correlations(table)


def _simulated(settings: Settings, *, stop_gradient: bool) -> Measured:
    """The share of the grid that collapses."""
    found = run_grid(settings, stop_gradient=stop_gradient)
    off = np.abs(deviation(found.collapsed, settings, stop_gradient=stop_gradient))
    seen = off[~np.isnan(off)]
    grid = f"{settings.count} × {settings.count} temperatures, {settings.steps:,} steps"
    if len(seen):
        grid += f"; the edge is {float(np.median(seen)):.1f} cells off the line (median)"
    flipped = 100 * float(found.flipped.mean())
    return Measured(
        value=100 * float(found.collapsed.mean()),
        how="simulated",
        notes=(
            f"{grid}; acclimate theory draws all 250 × 250",
            f"{flipped:.1f} % end on the wrong side, the steps being too long",
        ),
    )


def _correlations(table: Table) -> Iterator[tuple[Cell, Measured]]:
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
        yield cell, _counted(found.mean, note)
