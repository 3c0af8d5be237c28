"""A training of seconds: images of three colours, and a network of one convolution."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from acclimate.data import Preprocessing, open_images
from acclimate.pretraining import Examples, load_examples

RECORD = Preprocessing(size=(8, 8), mean=(0.5,) * 3, std=(0.25,) * 3)


def examples(count: int = 96) -> Examples:
    """Three classes that differ in colour."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, count)
    images = rng.integers(0, 120, (count, 8, 8, 3), dtype=np.uint8)
    images[np.arange(count), :, :, labels] += 120
    return load_examples(open_images(images, preprocessing=RECORD, labels=labels))


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())
