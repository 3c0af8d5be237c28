"""Let a trained image classifier acclimate to shifted, unlabelled data.

>>> import acclimate
>>> acclimate.get_recipe("rpl").objective
GeneralizedCrossEntropy(q=0.8)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acclimate._lazy import imported_when_used
from acclimate._version import __version__

if TYPE_CHECKING:
    from acclimate.adaptation import adapt as adapt
    from acclimate.data.preprocessing import Preprocessing as Preprocessing
    from acclimate.errors import AcclimateError as AcclimateError
    from acclimate.guard import Guard as Guard
    from acclimate.recipe import Recipe as Recipe
    from acclimate.recipes import get_recipe as get_recipe
    from acclimate.recipes import list_recipes as list_recipes
    from acclimate.recipes import register_recipe as register_recipe
    from acclimate.result import AdaptationResult as AdaptationResult
    from acclimate.stream import Stream as Stream

_HOME = {
    "AcclimateError": "errors",
    "AdaptationResult": "result",
    "Guard": "guard",
    "Preprocessing": "data.preprocessing",
    "Recipe": "recipe",
    "Stream": "stream",
    "adapt": "adaptation",
    "get_recipe": "recipes",
    "list_recipes": "recipes",
    "register_recipe": "recipes",
}

__all__ = ["__version__", *_HOME]


__getattr__, __dir__ = imported_when_used(__name__, _HOME)
