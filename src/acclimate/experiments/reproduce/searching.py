"""The settings of a cell: one, or those of a search of which the paper prints the best."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from acclimate.experiments.choices import Choices
from acclimate.experiments.job import Value
from acclimate.experiments.paper import Cell
from acclimate.experiments.reproduce.choice import ON_OTHERS, chosen_for
from acclimate.experiments.reproduce.needs import Lack

__all__ = ["Longest", "Setting", "longest_runs", "settings_of"]

Longest: TypeAlias = Mapping[Hashable, int]

_TUNE = (
    "the best setting is told by other images than it is scored on: choose with acclimate tune, "
    "then --choice FILE"
)
_UNSTATED = "the paper does not say which were tried; acclimate bench --set sweeps your own"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Options of a run, and after which of its epochs errors are read off.

    Attributes:
        options: of the recipe.
        epochs: empty for the end of the run.
    """

    options: Mapping[str, Value]
    epochs: tuple[int, ...] = ()


def settings_of(
    cell: Cell, *, choices: Choices, longest: Longest | None = None
) -> tuple[Setting, ...] | Lack:
    """What a cell is run with, or why that is not known.

    What the cell says comes first, then what was chosen beforehand, which is not searched again;
    the rest are the paper's presets and the library's defaults, which a run finds by itself.

    >>> from acclimate.experiments.paper import find_table
    >>> settings = settings_of(find_table("tbl:batchsize").cells[0], choices=Choices())
    >>> dict(settings[0].options), settings[0].epochs
    ({'batch_size': 16, 'optimizer.lr': 0.000125, 'epochs': 6}, (1, 2, 3, 4, 5, 6))
    """
    options: dict[str, Value] = {**chosen_for(cell, choices), **cell.options}
    if cell.epochs is not None:
        run = (longest or {}).get(_family(cell))
        # All of a shared run are read off alike, its last epoch too: the error after an epoch is
        # with batch statistics, that of the model handed back with those of all images.
        read = () if run is None else (cell.epochs,)
        run = cell.epochs if run is None else run
        return (Setting(options={**options, "epochs": run}, epochs=read),)
    search = {name: tried for name, tried in cell.search.items() if name not in options}
    if not search:
        return (Setting(options=options),)
    if not all(search.values()):
        return Lack(kind="unstated", what=", ".join(search), how=_UNSTATED)
    if not _by_its_own_score(cell):
        return Lack(kind="tune", what="needs acclimate tune", how=_TUNE)
    grid = {name: tried for name, tried in search.items() if name != "epochs"}
    epochs = tuple(int(number) for number in search.get("epochs", ()))
    last = {"epochs": max(epochs)} if epochs else {}
    return tuple(
        Setting(options={**options, **dict(zip(grid, values, strict=True)), **last}, epochs=epochs)
        for values in product(*grid.values())
    )


def longest_runs(cells: Iterable[Cell]) -> dict[Hashable, int]:
    """The most epochs of cells that differ in nothing else: one run has the errors of all."""
    epochs: dict[Hashable, set[int]] = {}
    for cell in cells:
        if cell.epochs is not None and cell.metric in ("error", "mCE", "mDE"):
            epochs.setdefault(_family(cell), set()).add(cell.epochs)
    return {family: max(found) for family, found in epochs.items() if len(found) > 1}


def _by_its_own_score(cell: Cell) -> bool:
    """Whether the best is told by what it is scored on, which takes no further images."""
    return cell.chosen_on is not None and cell.chosen_on in (cell.shift, cell.split, ON_OTHERS)


def _family(cell: Cell) -> Hashable:
    options = tuple(sorted(cell.options.items()))
    what = (cell.model, cell.weights, cell.dataset, cell.split, cell.recipe, cell.seeds, options)
    # An error after an epoch can be read off; other metrics are known at the end alone.
    return (*what, cell.metric in ("error", "mCE", "mDE"))
