"""What a way to train can decide, and the two that need nothing but labelled pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from acclimate.errors import AcclimateError
from acclimate.parts.base import check_range
from acclimate.pretraining.augment import crop_and_flip
from acclimate.pretraining.augmix import augmix
from acclimate.registry import Registry

__all__ = ["METHODS", "AugMix", "Batch", "Forward", "Method", "Vanilla", "check_colour"]

Forward: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Model input to logits and to the features they were made of (N × features)."""


@dataclass(frozen=True)
class Batch:
    """A step's pictures, uint8 on the device.

    Attributes:
        images: of the source.
        labels: theirs.
        target: pictures of the other domain, without labels; None where there is none.
        progress: how much of the training lies behind, from 0 to 1.
        normalize: from float pictures between 0 and 1, which it may overwrite, to model input.
        generator: for everything random, on the device.
    """

    images: Tensor
    labels: Tensor
    normalize: Callable[[Tensor], Tensor]
    generator: torch.Generator
    target: Tensor | None = None
    progress: float = 0.0


class Method:
    """A way to train: a frozen dataclass of its options.

    Subclasses write ``loss`` and, where they need them, the others. ``revision`` grows when the
    same options come to mean another computation: an older training is not gone on with then.
    """

    uses_target: ClassVar[bool] = False
    revision: ClassVar[int] = 1

    def heads(self, model: nn.Module, features: int) -> nn.Module:
        """What goes along with the model, and is thrown away with the training."""
        return nn.Module()

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        """What is minimised."""
        raise NotImplementedError

    def after_step(self, model: nn.Module, heads: nn.Module, *, progress: float) -> None:
        """What follows an update, such as that of a teacher; ``progress`` as in ``Batch``."""

    def finish(self, model: nn.Module, heads: nn.Module) -> None:
        """What the model becomes when the training is over."""

    def files(self, heads: nn.Module) -> dict[str, dict[str, Tensor]]:
        """What is worth keeping beside the model: tensors by file name."""
        return {}


METHODS: Registry[type[Method]] = Registry("way to pretrain")


@METHODS.register("vanilla")
@dataclass(frozen=True, kw_only=True)
class Vanilla(Method):
    """Cross-entropy on pictures that are cropped and, where that makes sense, mirrored."""

    flip: bool = True
    margin: int = 4

    def __post_init__(self) -> None:
        check_range(self, "margin", low=0)

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        """Mean cross-entropy."""
        images = crop_and_flip(batch.images, batch.generator, margin=self.margin, flip=self.flip)
        logits, _ = forward(batch.normalize(images.float() / 255))
        return functional.cross_entropy(logits.float(), batch.labels)


@METHODS.register("augmix")
@dataclass(frozen=True, kw_only=True)
class AugMix(Method):
    """AugMix (Hendrycks et al. 2020) with its Jensen-Shannon term.

    The model sees each picture three times, as it is and in two mixtures; its answers are drawn
    together.
    """

    consistency: float = 12.0
    flip: bool = True
    margin: int = 4

    def __post_init__(self) -> None:
        check_range(self, "consistency", low=0)
        check_range(self, "margin", low=0)

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy of the plain picture plus ``consistency`` times the divergence."""
        images = crop_and_flip(batch.images, batch.generator, margin=self.margin, flip=self.flip)
        plain = images.float() / 255
        views = [plain, *(augmix(plain, batch.generator) for _ in range(2))]
        logits = forward(batch.normalize(torch.cat(views)))[0].float().chunk(3)
        probabilities = [each.softmax(dim=1) for each in logits]
        mean = torch.stack(probabilities).mean(dim=0).clamp(1e-7, 1).log()
        apart = [functional.kl_div(mean, p, reduction="batchmean") for p in probabilities]
        entropy = functional.cross_entropy(logits[0], batch.labels)
        return entropy + self.consistency * torch.stack(apart).mean()


def check_colour(options: Any) -> None:
    """Refuse ``colour``, which is a way to change the brightness, where that is not changed."""
    if options.colour and not options.intensity:
        raise AcclimateError("expected intensity=true with colour=true, got intensity=false")
