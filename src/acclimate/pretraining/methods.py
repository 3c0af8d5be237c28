"""What is minimised when a source model is trained, one short class for each published way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from acclimate.pretraining.augment import crop_and_flip
from acclimate.pretraining.augmix import augmix
from acclimate.registry import Registry

__all__ = ["METHODS", "AugMix", "Batch", "Method", "Vanilla"]


@dataclass(frozen=True)
class Batch:
    """A step's pictures, uint8 on the device, and how they become model input.

    ``normalize`` takes float pictures from 0 to 1.
    """

    images: Tensor
    labels: Tensor
    normalize: Callable[[Tensor], Tensor]
    generator: torch.Generator


class Method(Protocol):
    """A way to train: from a model and a batch to a loss."""

    def loss(self, model: Callable[[Tensor], Tensor], batch: Batch) -> Tensor:
        """What is minimised."""


METHODS: Registry[type[Method]] = Registry("way to pretrain")


@METHODS.register("vanilla")
@dataclass(frozen=True, kw_only=True)
class Vanilla:
    """Cross-entropy on pictures that are cropped and, where that makes sense, mirrored."""

    flip: bool = True
    margin: int = 4

    def loss(self, model: Callable[[Tensor], Tensor], batch: Batch) -> Tensor:
        """Mean cross-entropy."""
        images = crop_and_flip(batch.images, batch.generator, margin=self.margin, flip=self.flip)
        logits = model(batch.normalize(images.float() / 255))
        return functional.cross_entropy(logits.float(), batch.labels)


@METHODS.register("augmix")
@dataclass(frozen=True, kw_only=True)
class AugMix:
    """AugMix (Hendrycks et al. 2020) with its Jensen-Shannon term.

    The model sees each picture three times, as it is and in two mixtures; its answers are drawn
    together.
    """

    consistency: float = 12.0
    flip: bool = True
    margin: int = 4

    def loss(self, model: Callable[[Tensor], Tensor], batch: Batch) -> Tensor:
        """Cross-entropy of the plain picture plus ``consistency`` times the divergence."""
        images = crop_and_flip(batch.images, batch.generator, margin=self.margin, flip=self.flip)
        plain = images.float() / 255
        views = [plain, *(augmix(plain, batch.generator) for _ in range(2))]
        logits = model(batch.normalize(torch.cat(views))).float().chunk(3)
        probabilities = [each.softmax(dim=1) for each in logits]
        mean = torch.stack(probabilities).mean(dim=0).clamp(1e-7, 1).log()
        apart = [functional.kl_div(mean, p, reduction="batchmean") for p in probabilities]
        entropy = functional.cross_entropy(logits[0], batch.labels)
        return entropy + self.consistency * torch.stack(apart).mean()
