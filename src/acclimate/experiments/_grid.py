"""A grid of recipe options, as the options of single jobs in the types the recipe has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from acclimate.errors import AcclimateError
from acclimate.experiments.job import UNADAPTED, Options, Value
from acclimate.parts import PARTS
from acclimate.recipe import Recipe
from acclimate.recipes import get_recipe

__all__ = ["Grid", "combinations", "of_one_pass", "recipe_options", "typed_options"]

Grid: TypeAlias = Mapping[str, Any]
"""Values, or a list of them, by option; and grids of single recipes by the recipe's name."""


def recipe_options(recipe: str, grid: Grid) -> list[Options]:
    """Every combination of what a grid has for a recipe.

    >>> grid = {"optimizer.lr": ["1e-3", 0.01], "ent": {"epochs": 2}}
    >>> recipe_options("ent", grid)
    [(('epochs', 2), ('optimizer.lr', 0.001)), (('epochs', 2), ('optimizer.lr', 0.01))]
    >>> recipe_options("bn", {**grid, "epochs": [1, 5]})
    [()]
    """
    chosen = combinations(recipe, grid)
    typed = [typed_options(get_recipe(recipe, options), options) for options in chosen]
    return list(dict.fromkeys(typed))


def combinations(recipe: str, grid: Grid) -> list[dict[str, Any]]:
    """Every combination, with the values as they were given."""
    if recipe == UNADAPTED:
        return [{}]
    made = get_recipe(recipe)
    own: Any = grid.get(recipe, {})
    if not isinstance(own, Mapping):
        raise AcclimateError(f"{recipe}: expected options of the recipe, got {own!r:.60}")
    general = {k: v for k, v in grid.items() if not isinstance(v, Mapping) and _uses(made, k)}
    values = {key: _listed(key, value) for key, value in {**general, **own}.items()}
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


def of_one_pass(recipe: str, options: Options) -> Options:
    """A stream is met once: a number of epochs must not make two jobs of one.

    Recipes that begin anew with each batch take so many steps with it.

    >>> of_one_pass("ent", (("epochs", 5), ("optimizer.lr", 0.01)))
    (('optimizer.lr', 0.01),)
    """
    if get_recipe(recipe, dict(options)).episode is not None:
        return options
    return tuple(pair for pair in options if pair[0] != "epochs")


def _uses(recipe: Recipe, key: str) -> bool:
    """What makes no difference to a recipe must not make two jobs of one."""
    slot = key.partition(".")[0]
    if key == "epochs":
        return recipe.learns
    return slot not in PARTS or slot in recipe.parts()


def _listed(key: str, value: Any) -> Sequence[Value]:
    values = list(value) if isinstance(value, list | tuple) else [value]
    if not values:
        raise AcclimateError(f"{key}: expected a value or a list of values, got an empty list")
    for each in values:
        if each is not None and not isinstance(each, str | int | float):
            raise AcclimateError(f"{key}: expected words or numbers, got {each!r:.60}")
    return values


def typed_options(recipe: Recipe, options: Mapping[str, Any]) -> Options:
    """1e-3 typed as a word and 0.001 are one option: what the recipe made of it is kept."""
    typed: dict[str, Value] = {}
    for key, value in options.items():
        slot, dot, option = key.partition(".")
        if not dot:
            typed[key] = value if slot in PARTS else getattr(recipe, key)
        else:
            typed[key] = getattr(getattr(recipe, slot), option)
    return tuple(sorted(typed.items()))
