"""Any two parts of a recipe work together, or the recipe is refused when it is checked."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from acclimate.errors import AcclimateError
from acclimate.learner.learner import Learner
from acclimate.methods.deyo import ShapeBound
from acclimate.methods.registry import RECIPES, get_recipe
from acclimate.parts.base import PARTS
from acclimate.recipe import Recipe
from nets import bn_net, images, tiny_vit
from tried_parts import OF_TRANSFORMERS, SMALL, learn, options_of, write_heads

REFUSED = {
    ("objective=dino", "selector=last-layer"),
    ("objective=dino", "selector=linear"),  # the classifier is all that is linear
    ("objective=rotation", "selector=last-layer"),
    ("objective=rotation", "selector=linear"),
    ("objective=none", "predictor=teacher"),
    ("objective=none", "predictor=student-and-teacher"),
    ("objective=none", "selector=adapters"),  # a transformer has no statistics to change
}
NAMES = {slot: registry.names() for slot, registry in PARTS.items()}
NAMES["objective"].append("none")


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    return write_heads(tmp_path_factory.mktemp("heads"))


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(PARTS, 2)))
def test_all_pairs(one: str, other: str, heads: dict[int, Path]) -> None:
    refused = set()
    for kinds in itertools.product(NAMES[one], NAMES[other]):
        parts = dict(zip((one, other), kinds, strict=True))
        transformer = not OF_TRANSFORMERS.isdisjoint(kinds)
        words = (f"{one}={kinds[0]}", f"{other}={kinds[1]}")
        try:
            recipe = Recipe(name="pair").with_options(options_of(parts, heads))
            recipe.check(tiny_vit() if transformer else bn_net())
        except AcclimateError:
            refused.add(words)
            continue
        try:
            learn(recipe, transformer=transformer)
        except Exception as error:
            raise AssertionError(f"{' '.join(words)}: {type(error).__name__}: {error}") from error
    assert refused == {pair for pair in REFUSED if pair[0].startswith(f"{one}=")} & {
        pair for pair in REFUSED if pair[1].startswith(f"{other}=")
    }


@pytest.mark.parametrize("name", RECIPES.names())
def test_every_recipe_takes_the_filter_that_shuffles(name: str, heads: dict[int, Path]) -> None:
    recipe = get_recipe(name)
    if recipe.learns:
        recipe = recipe.with_options(options_of({"filter": "shape-bound"}, heads))
    if name == "memo":
        recipe = recipe.with_options({"objective.augmentations": 3})
    if name == "ttt":
        recipe = recipe.with_options({"objective.head": str(heads[8]), "epochs": 1})
    if name == "dino":
        recipe = recipe.with_options({f"objective.{k}": v for k, v in SMALL["dino"].items()})
    learn(recipe, transformer=name == "rem")


def test_views_of_two_parts_are_refused() -> None:
    class Seeing(ShapeBound):
        def views(self, state: Any, images: torch.Tensor) -> list[torch.Tensor]:
            return [images, images.flip(3)]

    Recipe(name="one", filter=Seeing())
    with pytest.raises(AcclimateError, match=r"one part .* views .*, got objective 'dino' and fil"):
        get_recipe("dino", {"filter": Seeing()})


def test_shuffling_draws_alike_whatever_counts() -> None:
    states = []
    for margin in (0.0, 2.0):
        learner = Learner(bn_net(), get_recipe("deyo", {"filter.margin": margin}))
        learner.step(images(4))
        states.append(learner.generator.get_state())
    assert torch.equal(*states)
