"""The embedded images: 1,797 handwritten digits (UCI, CC BY 4.0; ``digits.LICENSE.txt``)."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import numpy as np

from acclimate.data.corruptions import corrupt
from acclimate.data.preprocessing import Preprocessing

__all__ = ["PREPROCESSING", "SEVERITY", "SHIFT", "TRAINING_IMAGES", "digits"]

# Fog, because it needs no colour and is the benchmark's everyday weather; the CIFAR constants,
# because those are the ones for small images. The middle severity, since an example should show
# what it is an example of: at 5, where new statistics leave 44 % wrong, learning gains nothing
# (benchmarks/results/demo_draws.json has all five).
SHIFT, SEVERITY, _SEED = "fog", 3, 0
TRAINING_IMAGES = 797

PREPROCESSING = Preprocessing(size=(8, 8), mean=(0.3,), std=(0.37,))


def digits(
    split: Literal["train", "held-out"], *, shifted: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Images (uint8, N × 8 × 8) and labels: 797 to train on, the other 1,000 held out.

    >>> images, labels = digits("held-out", shifted=True)
    >>> images.shape, images.dtype
    ((1000, 8, 8), dtype('uint8'))
    """
    with (files("acclimate.data") / "digits.npz").open("rb") as file, np.load(file) as stored:
        ink, labels = stored["images"], stored["labels"].astype(np.int64)
    order = np.random.default_rng(_SEED).permutation(len(ink))
    chosen = order[:TRAINING_IMAGES] if split == "train" else order[TRAINING_IMAGES:]
    images = np.round(ink[chosen] * (255 / 16)).astype(np.uint8)
    if shifted:
        images = corrupt(images, SHIFT, SEVERITY, preset="cifar", seed=_SEED)
    return images, labels[chosen]
