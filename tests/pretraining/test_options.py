"""Options: absurd values are refused with what was expected, and words find their place."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from acclimate.errors import AcclimateError
from acclimate.pretraining import AugMix, Dann, Dino, Plan, SelfEnsembling, UdaSs, Vanilla
from acclimate.pretraining.augment import crop_and_flip
from acclimate.pretraining.plan import sorted_options


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        *((Plan, {name: 0}, f"{name} > 0, got 0") for name in ("epochs", "batch_size", "lr")),
        (Plan, {"momentum": 2.0}, "momentum >= 0 and < 1, got 2.0"),
        (Plan, {"momentum": math.nan}, "momentum >= 0 and < 1, got nan"),
        (Plan, {"weight_decay": -1.0}, "weight_decay >= 0, got -1.0"),
        (Plan, {"weight_decay": math.inf}, "weight_decay >= 0, got inf"),
        (Plan, {"clip": 0.0}, "clip > 0, got 0.0"),
        (Plan, {"optimizer": "adagrad"}, "an optimizer sgd or adam, got 'adagrad'"),
        *((kind, {"margin": -1}, "margin >= 0, got -1") for kind in (Vanilla, AugMix, Dann, UdaSs)),
        (AugMix, {"consistency": math.nan}, "consistency >= 0, got nan"),
        (Dann, {"strength": -1.0}, "strength >= 0, got -1.0"),
        (Dann, {"delay": 1.0}, "delay >= 0 and < 1, got 1.0"),
        (UdaSs, {"tasks": ()}, r"one or more different tasks, got \(\)"),
        (UdaSs, {"tasks": ("flip", "flip")}, "one or more different tasks"),
        (SelfEnsembling, {"confidence": 7.0}, "confidence >= 0 and < 1, got 7.0"),
        (SelfEnsembling, {"momentum": 3.0}, "momentum >= 0 and < 1, got 3.0"),
        (SelfEnsembling, {"weight": math.nan}, "weight >= 0, got nan"),
        (SelfEnsembling, {"balance": -1.0}, "balance >= 0, got -1.0"),
        (Dino, {"prototypes": 0}, "prototypes >= 2, got 0"),
        (Dino, {"hidden": -4}, "hidden >= 1, got -4"),
        (Dino, {"bottleneck": 0}, "bottleneck >= 1, got 0"),
        (Dino, {"local_size": 0}, "local_size >= 1, got 0"),
    ],
)
def test_absurd_values(kind: Any, options: dict[str, Any], expected: str) -> None:
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
