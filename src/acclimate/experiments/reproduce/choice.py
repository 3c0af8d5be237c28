"""Hyper-parameters chosen beforehand, by ``acclimate tune`` or by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from acclimate.errors import AcclimateError
from acclimate.experiments import choices as files
from acclimate.experiments.job import Value

__all__ = ["Choices", "read_choices"]


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Options by recipe, for all models or for those that match a pattern.

    Attributes:
        options: by pattern of models and by recipe.
        marks: how they were chosen, where that was not on hold-out images alone.

    >>> choices = Choices(options={"*": {"ent": {"optimizer.lr": 1e-3}}})
    >>> choices.find("acclimate:wrn-40-2", "ent"), choices.find("acclimate:wrn-40-2", "rpl")
    ({'optimizer.lr': 0.001}, None)
    """

    options: Mapping[str, Mapping[str, Mapping[str, Value]]] = field(default_factory=dict)
    marks: tuple[str, ...] = ()

    def find(self, model: str | None, recipe: str | None) -> Mapping[str, Value] | None:
        """The options for a model and a recipe; those of a model before those of all."""
        for pattern, recipes in sorted(self.options.items(), key=lambda item: item[0] == "*"):
            if recipe is not None and recipe in recipes and fnmatchcase(model or "", pattern):
                return recipes[recipe]
        return None


def read_choices(*paths: str | Path) -> Choices:
    """Read ``{"ent": {"optimizer.lr": 1e-3}}``, or what ``acclimate tune --out`` wrote."""
    found = files.read_choices(*paths)
    options: dict[str, dict[str, Mapping[str, Value]]] = {}
    for pattern, recipes in found.chosen.items():
        for recipe, chosen in recipes.items():
            if chosen.options is None:
                raise AcclimateError(
                    f"{found.source} (--choice) has options of {recipe} for each shift, where a "
                    "cell of the paper has one setting for all; choose on hold-out corruptions"
                )
            options.setdefault(pattern, {})[recipe] = chosen.options
    return Choices(options=options, marks=tuple(found.marks))
