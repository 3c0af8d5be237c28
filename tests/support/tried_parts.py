"""Recipes of any parts, small enough to try by the hundred."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from acclimate.checkpoint import tensors_writer
from acclimate.files import write_files
from acclimate.learner.learner import Learner
from acclimate.recipe import Recipe
from nets import CLASSES, bn_net, images, tiny_vit

SMALL = {
    "dino": {"hidden": 8, "bottleneck": 4, "prototypes": 6, "local_crops": 1},
    "marginal-entropy": {"augmentations": 3},
    "augmentation-averaged": {"views_per_image": 2},
    # All images count, or what comes after the filter would not be tried.
    "confidence": {"threshold": 0.0},
    "entropy-margin": {"margin": 2.0},
    "reliable-diverse": {"margin": 2.0, "max_similarity": 1.0},
    "shape-bound": {"margin": 2.0, "min_difference": -1.0},
}

OF_TRANSFORMERS = {"adapters", "ranked-entropy"}
"""Parts that only a transformer has use for."""


def write_heads(folder: Path) -> dict[int, Path]:
    """Rotation heads for so many features."""
    paths = {width: folder / f"{width}.safetensors" for width in (8, 16)}
    for width, path in paths.items():
        tensors = {"weight": torch.randn(4, width), "bias": torch.zeros(4)}
        write_files({path: tensors_writer(tensors)})
    return paths


def options_of(parts: dict[str, str], heads: dict[int, Path]) -> dict[str, Any]:
    """Options that name parts by slot, and make them small."""
    small: dict[str, Any] = dict(parts)
    for slot, kind in parts.items():
        small |= {f"{slot}.{name}": value for name, value in SMALL.get(kind, {}).items()}
        if kind == "rotation":
            head = heads[16 if "adapters" in parts.values() else 8]
            small |= {f"{slot}.head": str(head), f"{slot}.copies": 2}
    return small


def learn(recipe: Recipe, *, transformer: bool, batch: int = 4, finite: bool = True) -> None:
    """Two steps and a prediction, all of the right shape; ``finite`` where options are sensible."""
    model, size = (tiny_vit(), 16) if transformer else (bn_net(), 8)
    recipe.check(model)
    learner = Learner(model, recipe, classes=CLASSES)
    learner.start_epoch()
    for seed in range(2):
        logits = learner.step(images(batch, seed=seed, size=size)).logits
        assert logits.shape == (batch, CLASSES)
        assert bool(logits.isfinite().all()) or not finite
    assert learner.predict(images(batch, size=size)).shape == (batch, CLASSES)
    learner.release()
