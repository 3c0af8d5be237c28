"""One file per published method; each ends in the recipe that has its name.

Importing this registers them all, and the parts they bring.
"""

from importlib import import_module
from pkgutil import iter_modules

from acclimate.methods.registry import RECIPES, get_recipe, list_recipes, register_recipe
from acclimate.parts.base import PARTS
from acclimate.recipe import Recipe

__all__ = ["PARTS", "RECIPES", "Recipe", "get_recipe", "list_recipes", "register_recipe"]

for _module in iter_modules(__path__):
    for _value in vars(import_module(f"{__name__}.{_module.name}")).values():
        if isinstance(_value, Recipe):
            RECIPES.add(_value.name, _value)
