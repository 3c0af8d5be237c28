"""Cells for which nothing is run: what is counted, and numbers the library itself goes by."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import nn

from acclimate.data.imagenet_d import mapping
from acclimate.errors import AcclimateError
from acclimate.experiments.job import UNADAPTED
from acclimate.experiments.paper import Cell
from acclimate.metrics import ALEXNET_CORRUPTIONS, ALEXNET_DOMAINS
from acclimate.models.loading import outline
from acclimate.models.shipped import ARCHITECTURES
from acclimate.presets import find_preset
from acclimate.recipes import get_recipe

__all__ = ["Counted", "counted"]

_COPIED = "copied from the paper, not measured: what acclimate's mCE and mDE divide by"
_PRESET = {"optimizer.lr": "lr", "batch_size": "batch_size", "epochs": "epochs"}


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A number that takes no data.

    Attributes:
        value: None where it could not be had.
        how: "counted" from a model or the label map; "library" where it is a number that the
            library goes by, which compares the library with the paper and measures nothing.
        note: what one should know.
    """

    value: float | None
    how: Literal["counted", "library"] = "counted"
    note: str = ""


def counted(cell: Cell) -> Counted | None:
    """The number of a cell that needs no run; None where it does.

    >>> from acclimate.experiments.paper import find_table
    >>> counted(find_table("tbl:groupnorm").cells[0])
    Counted(value=1456858, how='counted', note='')
    """
    try:
        return _counted(cell)
    except AcclimateError as error:
        return Counted(value=None, note=str(error).splitlines()[0])


def _counted(cell: Cell) -> Counted | None:
    if cell.metric == "parameters":
        return Counted(value=_parameters(str(cell.model)))
    if cell.metric == "adapted parameters":
        return Counted(value=_adapted(cell))
    if cell.metric == "classes":
        return _classes(int(cell.column))
    if cell.metric in _PRESET:
        return _preset(cell)
    if cell.model == "paper:alexnet" and cell.shift is not None:
        kept = {**ALEXNET_CORRUPTIONS, **ALEXNET_DOMAINS}[cell.shift]
        return Counted(value=kept, how="library", note=_COPIED)
    return None


@cache
def _model(spec: str) -> nn.Module:
    bare = ARCHITECTURES.get(spec.removeprefix("acclimate:"))
    with torch.device("meta") if bare else nullcontext():  # shapes are enough
        return outline(spec).model


def _parameters(spec: str) -> int:
    return sum(parameter.numel() for parameter in _model(spec).parameters())


def _adapted(cell: Cell) -> int:
    if cell.recipe in (None, UNADAPTED):
        return 0
    model = _model(str(cell.model))
    selected = set(get_recipe(str(cell.recipe), dict(cell.options)).selector.names(model))
    return sum(p.numel() for name, p in model.named_parameters() if name in selected)


def _classes(outputs: int) -> Counted:
    sizes = [len(entry.outputs) for entry in mapping()]
    pairs = f"acclimate's own map has {len(sizes)} classes and {sum(sizes)} pairs"
    return Counted(value=sizes.count(outputs), note=pairs)


def _preset(cell: Cell) -> Counted:
    preset = find_preset(str(cell.recipe), model_name=str(cell.model))
    value = None if preset is None else float(getattr(preset, _PRESET[cell.metric]))
    return Counted(
        value=value, how="library", note="the library's preset; acclimate tune chooses again"
    )
