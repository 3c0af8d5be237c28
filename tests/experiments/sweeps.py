"""A small data set, and jobs on it that take a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from acclimate.demo.digits import digits
from acclimate.experiments import Job

MODEL, DATASET = "acclimate:digits", "mnist"


def write_digits(folder: Path, count: int = 160) -> dict[str, str]:
    """The held-out digits at MNIST's size; the roots of a sweep over them."""
    images, labels = digits("held-out")
    large = np.kron(images[:count], np.ones((1, 3, 3), np.uint8))
    large = np.pad(large, ((0, 0), (2, 2), (2, 2)))
    np.savez(folder / "mnist-test.npz", images=large, labels=labels[:count])
    return {DATASET: str(folder)}


def a_job(recipe: str = "ent", *, shift: str | None = "cifar/fog:2", **changes: Any) -> Job:
    options = {} if recipe in ("none", "bn") else {"epochs": 2, "optimizer.lr": 0.01}
    options |= changes.pop("options", {})
    values = {"model": MODEL, "dataset": DATASET, "recipe": recipe, "shift": shift}
    return Job.of(**{**values, **changes}, options=options)
