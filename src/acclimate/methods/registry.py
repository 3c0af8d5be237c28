"""The named recipes, and the door through which users add their own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.methods import METHODS
from acclimate.parts.normalization import Mixture, Source
from acclimate.parts.objectives import CrossEntropy, GeneralizedCrossEntropy
from acclimate.parts.teachers import Epoch
from acclimate.recipe import Recipe
from acclimate.registry import Registry

__all__ = ["RECIPES", "get_recipe", "list_recipes", "register_recipe"]

RECIPES: Registry[Callable[[], Recipe]] = Registry("recipe")
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
    RECIPES.add(make().name, make)
    return make


def get_recipe(recipe: str | Recipe, options: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe by name (or as it is), with some options changed."""
    if not isinstance(recipe, str | Recipe):
        raise AcclimateError(f"expected a recipe's name or a Recipe, got {type(recipe).__name__}")
    if isinstance(recipe, str):
        if recipe not in RECIPES:
            _load_entry_points()
        recipe = RECIPES[recipe]()
    return recipe.with_options(options or {})


def list_recipes(pattern: str = "*") -> list[Recipe]:
    """Every recipe whose name matches."""
    _load_entry_points()
    return [RECIPES[name]() for name in RECIPES.names(pattern)]


def _load_entry_points() -> None:
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in RECIPES:
            continue
        try:
            RECIPES.add(point.name, point.load())
        except Exception as error:  # a broken plug-in must not take the others away
            warnings.warn(
                f"the recipe plug-in {point.value!r} failed to load: {error}",
                AcclimateWarning,
                stacklevel=3,
            )


def _built_in(recipe: Recipe) -> None:
    RECIPES.add(recipe.name, lambda: recipe)


_built_in(
    Recipe(
        name="none",
        summary="the source model as it is",
        objective=None,
        normalization=Source(),
    )
)
_built_in(
    Recipe(
        name="bn",
        summary="batch-norm statistics of the target (Schneider et al. 2020; Nado et al. 2020)",
        objective=None,
    )
)
_built_in(
    Recipe(
        name="bn-prior",
        summary="batch-norm statistics mixed with the source's as a prior of 16 images",
        objective=None,
        normalization=Mixture(prior=16),
    )
)
_built_in(
    Recipe(
        name="ent",
        summary="entropy minimisation, ENT",
        objective=CrossEntropy(stop_gradient=False),
        epochs=1,
    )
)
_built_in(
    Recipe(
        name="hard",
        summary="hard pseudo-labels, teacher refreshed every epoch",
        objective=CrossEntropy(teacher_temperature=0.0),
        teacher=Epoch(),
        epochs=5,
    )
)
_built_in(
    Recipe(
        name="soft",
        # At equal temperatures the gradient vanishes while teacher and student are one, so this
        # gives what `bn` gives, as in the paper (60.1 against 60.2 mCE); lower the teacher's.
        summary="soft pseudo-labels, teacher refreshed every epoch",
        objective=CrossEntropy(),
        teacher=Epoch(),
        epochs=5,
    )
)
_built_in(
    Recipe(
        name="rpl",
        summary="robust pseudo-labels, RPL: generalised cross-entropy with an instant teacher",
        objective=GeneralizedCrossEntropy(q=0.8),
        epochs=5,
    )
)
_built_in(
    Recipe(
        name="rpl-epoch",
        summary="robust pseudo-labels, RPL^ep: teacher refreshed every epoch",
        objective=GeneralizedCrossEntropy(q=0.8),
        teacher=Epoch(),
        epochs=5,
    )
)
for _method in METHODS:
    _built_in(_method)
