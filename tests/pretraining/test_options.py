"""Options: absurd values are refused with what was expected, and words find their place."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
import torch

from acclimate.errors import AcclimateError
from acclimate.pretraining import METHODS, Plan, SelfEnsembling, UdaSs, Vanilla
from acclimate.pretraining.augment import crop_and_flip
from acclimate.pretraining.plan import sorted_options

NUMBERS = [
    (kind, option.name)
    for kind in (Plan, *(METHODS[name] for name in METHODS))
    for option in fields(kind)
    if option.name != "seed" and option.type.split(" ")[0] in ("int", "float")
]


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
@pytest.mark.parametrize("value", [-1e9, math.nan, math.inf])
def test_a_number_outside_its_range_is_refused(kind: Any, name: str, value: float) -> None:
    with pytest.raises(AcclimateError, match=f"expected {name} >=? [0-9].*, got {value}"):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        (Plan, {"optimizer": "adagrad"}, "an optimizer sgd or adam, got 'adagrad'"),
        (Plan, {"seed": -1}, r"a seed >= 0 and < 2\*\*40, got -1"),
        (UdaSs, {"tasks": ()}, r"one or more different tasks, got \(\)"),
        (UdaSs, {"tasks": ("flip", "flip")}, "one or more different tasks"),
        (SelfEnsembling, {"augmentation": "ft"}, "an augmentation of none, tf or tfa, got 'ft'"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    kind: Any, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(AcclimateError, match=f"expected {expected}"):
        kind(**options)


def test_an_unknown_task() -> None:
    with pytest.raises(AcclimateError, match="unknown task of uda-ss 'rotate'; did you mean"):
        UdaSs(tasks=("rotate",))


@pytest.mark.parametrize("margin", [8, 40])
def test_images_are_not_moved_beyond_themselves(margin: int) -> None:
    images = torch.zeros(2, 3, 8, 10, dtype=torch.uint8)
    with pytest.raises(AcclimateError, match=f"margin >= 0 and < 8, .* got {margin}"):
        crop_and_flip(images, torch.Generator(), margin=margin)
    assert crop_and_flip(images, torch.Generator(), margin=7).shape == images.shape


def test_a_name_that_plan_and_method_share_needs_a_prefix() -> None:
    words = ["plan.momentum=0.8", "method.momentum=0.99", "clip=none", "weight=2"]
    plan, method = sorted_options(words, SelfEnsembling)
    assert plan == {"momentum": 0.8, "clip": None}
    assert method == {"momentum": 0.99, "weight": 2.0}
    with pytest.raises(AcclimateError, match=r"expected plan.momentum or method.momentum"):
        sorted_options(["momentum=0.9"], SelfEnsembling)
    assert sorted_options(["momentum=0.9"], Vanilla) == ({"momentum": 0.9}, {})


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("method.clip=1", "unknown option 'clip'"),
        ("recipe.margin=1", "unknown option 'recipe.margin'"),
        ("batch_size=3", "expected --batch-size 3"),
    ],
)
def test_words_without_a_place(word: str, expected: str) -> None:
    with pytest.raises(AcclimateError, match=expected):
        sorted_options([word], Vanilla, elsewhere=["batch_size"])
