"""scikit-learn's handwritten digits, split once and for all, clean and in fog."""

from __future__ import annotations

from typing import Literal

import numpy as np

from acclimate.data import Preprocessing
from acclimate.data.corruptions import corrupt

__all__ = ["PREPROCESSING", "SEVERITY", "SHIFT", "digits"]

# Fog, because it needs no colour and is the benchmark's everyday weather; the CIFAR constants,
# because those are the ones for small pictures. The middle severity, since an example should show
# what it is an example of: at 5, where new statistics leave 44 % wrong, learning gains nothing
# (benchmarks/results/demo_draws.json has all five).
SHIFT, SEVERITY, SEED = "fog", 3, 0
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
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(SEED).permutation(len(data.images))
    chosen = order[:TRAINING_IMAGES] if split == "train" else order[TRAINING_IMAGES:]
    images = np.round(data.images[chosen] * (255 / 16)).astype(np.uint8)
    labels = data.target[chosen].astype(np.int64)
    if shifted:
        images = corrupt(images, SHIFT, SEVERITY, preset="cifar", seed=SEED)
    return images, labels
