"""What is done otherwise than in the paper, in words."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.experiments.choices import Choices
from acclimate.experiments.job import UNADAPTED
from acclimate.experiments.paper import Cell
from acclimate.experiments.reproduce.choice import ON_OTHERS, chosen_for
from acclimate.experiments.reproduce.needs import Place
from acclimate.experiments.reproduce.searching import Setting
from acclimate.models.own import checkpoints
from acclimate.presets import find_preset
from acclimate.recipes import get_recipe

__all__ = ["notes_of"]

_AFTER_EPOCH = (
    "errors after an epoch are with batch statistics; the model handed back, which other tables "
    "score, has statistics of all images"
)


def notes_of(cell: Cell, place: Place, settings: Sequence[Setting], choices: Choices) -> list[str]:
    """Whose network it is, where its images and its hyper-parameters come from."""
    return [*_network(cell), *_images(cell, place), *_rates(cell, settings, choices)]


def _network(cell: Cell) -> list[str]:
    own = checkpoints().get(str(cell.model).removeprefix("acclimate:"))
    if own is None:
        return []
    clean = f"{own.error:.1f} % error on {own.error_on}"
    return [f"the network is this package's own ({clean}), not the paper's"]


def _images(cell: Cell, place: Place) -> list[str]:
    if place.preset is None:
        return []
    frost = "; frost has textures of our own" if cell.shift in ("test", "frost") else ""
    return [f"{cell.dataset} is made on the way from {place.dataset}{frost}"]


def _rates(cell: Cell, settings: Sequence[Setting], choices: Choices) -> list[str]:
    if cell.recipe in (None, UNADAPTED):
        return []
    recipe = get_recipe(str(cell.recipe))
    if not recipe.learns:
        return []
    notes = []
    chosen = chosen_for(cell, choices)
    tried = sum(max(1, len(setting.epochs)) for setting in settings) if cell.search else 1
    if tried > 1:
        on_others = f"chosen on {ON_OTHERS}: best of {tried} settings there"
        oracle = f"selection=oracle: best of {tried} settings by the labels it is scored on"
        notes.append(on_others if cell.chosen_on == ON_OTHERS else oracle)
    if cell.search and settings[0].epochs:
        notes.append(_AFTER_EPOCH)
    if chosen:
        marks = f" ({'; '.join(choices.marks)})" if choices.marks else ""
        notes.append(f"options of --choice{marks}")
    elif tried == 1 and "optimizer.lr" not in settings[0].options and recipe.optimizer.lr is None:
        preset = find_preset(recipe.name, model_name=str(cell.model))
        whose = "the paper's preset" if preset else "the library's defaults; the paper prints none"
        notes.append(f"learning rate and epochs: {whose}")
    elif tried == 1 and "optimizer.lr" not in settings[0].options:
        notes.append("learning rate: the recipe's own; the paper prints none")
    if settings[0].epochs and not cell.search:
        last = settings[0].options["epochs"]
        notes += [f"read off after epoch {settings[0].epochs[0]} of a run of {last}", _AFTER_EPOCH]
    return notes
