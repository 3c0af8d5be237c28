"""``acclimate show recipe NAME``: its parts and options, in the words of ``--set``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from acclimate.cli.tables import table
from acclimate.errors import AcclimateError
from acclimate.words import value_word

if TYPE_CHECKING:
    from acclimate.recipe import Recipe

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Print what a recipe is made of, and what else could stand in each place."""
    from acclimate.recipes import get_recipe

    for option in ("weights", "num_classes"):
        if getattr(args, option) is not None:
            raise AcclimateError(f"--{option.replace('_', '-')} is for show model")
    recipe = get_recipe(args.name)
    if args.json:
        print(json.dumps(recipe.to_dict(), ensure_ascii=False))
        return 0
    print(f"{recipe.name}: {recipe.summary}\n")
    print(table(list(_rows(recipe)), header=["option", "value", "instead"]))
    how = f"acclimate adapt ... --recipe {recipe.name} --set epochs=3"
    print(f"\n--set OPTION=VALUE changes one: {how}")
    return 0


def _rows(recipe: Recipe) -> Iterator[list[str]]:
    from acclimate.parts import PARTS, known_parts

    used = {"objective", *recipe.parts()}  # without an objective most places are empty
    for name, value in recipe.to_dict().items():
        if name not in PARTS:
            if name not in ("name", "summary"):
                yield [name, _word(name, value), ""]
        elif name in used:
            options = {"kind": None} if value is None else dict(value)
            kind = options.pop("kind")
            others = [each for each in known_parts(name).names() if each != kind]
            yield [name, _word(name, kind), " ".join(others)]
            for option, each in options.items():
                yield [f"{name}.{option}", _word(f"{name}.{option}", each), ""]


def _word(name: str, value: Any) -> str:
    if name == "optimizer.lr" and value is None:
        return "the paper's, or 0.001"
    return "none" if value is None else value_word(value).lower()
