"""The table of named recipes, to which users add their own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.recipe import Recipe
from acclimate.registry import Registry, call_found, find_object

__all__ = ["RECIPES", "get_recipe", "list_recipes", "register_recipe"]

RECIPES: Registry[Recipe] = Registry("recipe")
ENTRY_POINTS = "acclimate.recipes"


def register_recipe(make: Callable[[], Recipe]) -> Callable[[], Recipe]:
    """Decorator: a function that returns a Recipe makes it known under the recipe's name.

    Packages can do the same with an entry point in the group ``acclimate.recipes``.

    >>> @register_recipe
    ... def cautious():
    ...     from acclimate import get_recipe
    ...     return get_recipe("rpl", {"name": "cautious", "filter": "confidence"})
    >>> get_recipe("cautious").filter.threshold
    0.5
    """
    recipe = make()
    RECIPES.add(recipe.name, recipe)
    return make


def get_recipe(recipe: str | Recipe, options: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe (by name, as ``py:module:function``, or a Recipe) with some options changed."""
    if isinstance(recipe, str):
        recipe = _find(recipe)
    if not isinstance(recipe, Recipe):
        raise AcclimateError(f"expected a recipe's name or a Recipe, got {type(recipe).__name__}")
    return recipe.with_options(options or {})


def _find(name: str) -> Recipe:
    if name.startswith("py:"):
        found = find_object(name.removeprefix("py:"))
        made = call_found(found, name) if callable(found) else found
        if not isinstance(made, Recipe):
            raise AcclimateError(
                f"expected a Recipe, or a function that returns one, at {name}; "
                f"got {type(made).__name__}"
            )
        return made
    if name not in RECIPES:
        _load_entry_points()
    return RECIPES[name]


def list_recipes(pattern: str = "*") -> list[Recipe]:
    """Every recipe whose name matches."""
    _load_entry_points()
    return [RECIPES[name] for name in RECIPES.names(pattern)]


def _load_entry_points() -> None:
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in RECIPES:
            continue
        try:
            RECIPES.add(point.name, point.load()())
        except Exception as error:  # a broken plug-in must not take the others away
            warnings.warn(
                f"the recipe plug-in {point.value!r} failed to load: {error}",
                AcclimateWarning,
                stacklevel=3,
            )
