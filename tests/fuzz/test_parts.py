"""Any parts with any options are refused, or take two steps whose predictions have their shape."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import acclimate.methods  # noqa: F401  the parts that methods bring
from acclimate.errors import AcclimateError
from acclimate.methods.registry import RECIPES, get_recipe
from acclimate.parts.base import PARTS
from fuzzing import cases
from tried_parts import OF_TRANSFORMERS, learn, options_of, write_heads

pytestmark = pytest.mark.filterwarnings("ignore")  # of small batches

NAMES = {slot: registry.names() for slot, registry in PARTS.items()}
NAMES["objective"].append("none")
COSTLY = {"hidden", "bottleneck", "prototypes", "local_crops", "augmentations", "copies", "size",
          "views_per_image", "views", "head", "steps", "queue", "capacity", "dim"}  # fmt: skip
"""Options that make a part large, and files."""


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    return write_heads(tmp_path_factory.mktemp("heads"))


def near(default: float, kind: str) -> st.SearchStrategy[Any]:
    """Numbers about a default, and the ends of what may be a range."""
    if kind == "int":
        return st.one_of(st.integers(0, 8), st.sampled_from([1, 2, default]))
    return st.one_of(
        st.floats(0.1, 10).map(lambda times: default * times),
        st.sampled_from([0.0, 1.0, 0.5, 1e-3]),
    )


@st.composite
def options(draw: st.DrawFn, parts: dict[str, str]) -> dict[str, Any]:
    """Some options of some parts."""
    found: dict[str, Any] = {}
    for slot, kind in parts.items():
        if kind == "none" and slot == "objective":
            continue
        for each in fields(PARTS[slot][kind]):
            numeric = str(each.type).split(" ")[0]
            if each.name in COSTLY or each.default is MISSING or draw(st.integers(0, 2)):
                continue
            if isinstance(each.default, bool):
                found[f"{slot}.{each.name}"] = draw(st.booleans())
            elif numeric in ("int", "float") and each.default is not None:
                found[f"{slot}.{each.name}"] = draw(near(each.default, numeric))
    return found


@cases(120)
@given(st.data())
def test_any_parts_and_options(heads: dict[int, Path], data: st.DataObject) -> None:
    slots = data.draw(st.lists(st.sampled_from(sorted(PARTS)), min_size=2, unique=True))
    parts = {slot: data.draw(st.sampled_from(NAMES[slot])) for slot in slots}
    changed = {**options_of(parts, heads), **data.draw(options(parts))}
    changed["episode"] = data.draw(st.sampled_from([None, None, "batch", "image"]))
    name = data.draw(st.sampled_from(["ent", "rpl", "bn", "none", "soft"]))
    batch = data.draw(st.sampled_from([1, 2, 4]))
    try:
        recipe = get_recipe(name, changed)
        learn(
            recipe,
            transformer=not OF_TRANSFORMERS.isdisjoint(parts.values()),
            batch=batch,
            finite=False,
        )
        event("learnt")
    except AcclimateError:
        event("refused")


@cases(60)
@given(st.sampled_from(RECIPES.names()), st.data())
def test_any_recipe_with_another_part(
    heads: dict[int, Path], name: str, data: st.DataObject
) -> None:
    slot = data.draw(st.sampled_from(sorted(PARTS)))
    parts = {slot: data.draw(st.sampled_from(NAMES[slot]))}
    try:
        learn(get_recipe(name, options_of(parts, heads)), transformer=False, batch=4)
        event("learnt")
    except AcclimateError:
        event("refused")


@cases(150)
@given(
    st.sampled_from(RECIPES.names()),
    st.sampled_from([*PARTS, "epochs", "batch_size", "episode", "optimizer.lr", "objective.q"]),
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([]),
        st.sampled_from(["sgd", "1", "nan", "1e400", "py:os:getcwd", "py:", "\x00"]),
    ),
)  # fmt: skip
def test_any_value_of_an_option(name: str, option: str, value: Any) -> None:
    try:
        recipe = get_recipe(name, {option: value})
    except AcclimateError:
        return
    assert recipe.epochs >= 1
    assert recipe.optimizer.lr is None or math.isfinite(recipe.optimizer.lr)
