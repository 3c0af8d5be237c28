"""Hyper-parameters of cells that were chosen beforehand, by ``acclimate tune`` or by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from acclimate.errors import AcclimateError
from acclimate.experiments import choices as files
from acclimate.experiments.choices import Choices
from acclimate.experiments.job import Value
from acclimate.experiments.paper import Cell

__all__ = ["ON_OTHERS", "chosen_for", "read_choices"]

ON_OTHERS = "the other domains"
"""What a cell is chosen on where each domain is left out in turn: its own runs tell."""


def chosen_for(cell: Cell, choices: Choices) -> Mapping[str, Value]:
    """The options that were chosen for a cell; none where it is chosen by its own runs.

    >>> from acclimate.experiments.paper import find_table
    >>> cell = find_table("tbl:groupnorm").cells[2]
    >>> chosen_for(cell, Choices.of({"*": {"rpl": {"epochs": 2}}}))
    {'epochs': 2}
    """
    if cell.model is None or cell.recipe is None or cell.chosen_on == ON_OTHERS:
        return {}
    found = choices.find(cell.model, cell.recipe)
    return {} if found is None or found.options is None else found.options


def read_choices(*paths: str | Path) -> Choices:
    """Choice files whose options are for all images, as a cell has one setting for all."""
    found = files.read_choices(*paths)
    for recipes in found.chosen.values():
        for recipe, chosen in recipes.items():
            if chosen.options is None:
                raise AcclimateError(
                    f"{found.source} (--choice) has options of {recipe} for each shift, where a "
                    "cell of the paper has one setting for all; choose on hold-out corruptions"
                )
    return found
