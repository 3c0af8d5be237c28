"""Learning rates and epochs that this project chose on hold-out corruptions, by model and recipe.

They ship with the package, so that the tables of README and docs can be run without its repository.
A rate is of the network it was chosen for, and so of its kind of norm: group norm wants a hundredth
of the rates of batch norm.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files

from acclimate.bench.choices import Choices, Chosen, read_choices

__all__ = ["FILE", "shipped_choices", "ships", "with_shipped"]

FILE = "chosen.json"


@cache
def shipped_choices() -> Choices:
    """What was chosen, as ``acclimate tune`` wrote it.

    >>> for kind in ("bn", "gn"):
    ...     chosen = shipped_choices().find(f"acclimate:wrn-26-2-{kind}-cifar10", "ent")
    ...     print(kind, chosen.options["optimizer.lr"], chosen.selection)
    bn 0.03 dev
    gn 0.0003 dev
    """
    with as_file(files(__package__) / FILE) as path:
        return read_choices(path)


def with_shipped(choices: Choices | None = None) -> Choices:
    """Choices of one's own, and those that ship where they have none.

    >>> own = Choices.of({"acclimate:wrn-*": {"ent": {"epochs": 2}}})
    >>> both, model = with_shipped(own), "acclimate:wrn-26-2-bn-cifar10"
    >>> both.find(model, "ent").options, both.find(model, "rpl").options["epochs"]
    ({'epochs': 2}, 10)
    """
    own, shipped = choices or Choices(), shipped_choices()
    left = {
        model: {recipe: each for recipe, each in recipes.items() if not own.find(model, recipe)}
        for model, recipes in shipped.chosen.items()
    }
    together = {
        model: {**left.get(model, {}), **own.chosen.get(model, {})}
        for model in dict.fromkeys((*own.chosen, *left))
    }
    return Choices(chosen=together, source=own.source)


def ships(chosen: Chosen) -> bool:
    """Whether a choice is one of those that ship."""
    recipes = shipped_choices().chosen.values()
    return any(chosen is each for found in recipes for each in found.values())
