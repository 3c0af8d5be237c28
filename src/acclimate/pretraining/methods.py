"""What a training method defines, the augmentation most share, and the plain method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from acclimate.errors import AcclimateError
from acclimate.parts.base import check_options, option
from acclimate.pretraining.augment import crop_and_flip, relit
from acclimate.registry import Registry

__all__ = ["METHODS", "Batch", "Cropping", "Forward", "Method", "Relighting", "Vanilla"]

Forward: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Model input to logits and to the features they were made of (N × features)."""


@dataclass(frozen=True)
class Batch:
    """A step's images, uint8 on the device, and those of the other domain (``target``), if any.

    ``normalize`` turns float images between 0 and 1, which it may overwrite, into model input;
    ``progress`` is how much of the training is done, from 0 to 1.
    """

    images: Tensor
    labels: Tensor
    normalize: Callable[[Tensor], Tensor]
    generator: torch.Generator
    target: Tensor | None = None
    progress: float = 0.0


class Method:
    """A training method: a frozen dataclass of its options.

    Subclasses write ``loss`` and, where they need them, the others. ``revision`` grows when the
    same options come to mean another computation: an older training is not resumed then.
    """

    uses_target: ClassVar[bool] = False
    revision: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_options(self)

    def heads(self, model: nn.Module, features: int) -> nn.Module:
        """What learns beside the model, and is thrown away with the training."""
        return nn.Module()

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        """What is minimised."""
        raise NotImplementedError

    def after_step(self, model: nn.Module, heads: nn.Module, *, progress: float) -> None:
        """What follows an update, such as that of a teacher; ``progress`` as in ``Batch``."""

    def finish(self, model: nn.Module, heads: nn.Module) -> None:
        """What the model becomes when the training ends."""

    def files(self, heads: nn.Module) -> dict[str, dict[str, Tensor]]:
        """What is written beside the model: tensors by file name."""
        return {}


METHODS: Registry[type[Method]] = Registry("pretraining method")


@dataclass(frozen=True, kw_only=True)
class Cropping(Method):
    """A method whose images are moved by up to ``margin`` px and, with ``flip``, mirrored."""

    flip: bool = True
    margin: int = option(4, low=0)

    def cropped(self, images: Tensor, batch: Batch) -> Tensor:
        """Float images between 0 and 1, drawn anew."""
        return (
            crop_and_flip(images, batch.generator, margin=self.margin, flip=self.flip).float() / 255
        )


@dataclass(frozen=True, kw_only=True)
class Relighting(Cropping):
    """A method of two domains that may change their brightness, as self-ensembling does.

    Attributes:
        flip: mirror images.
        margin: by how many pixels to move them.
        intensity: change and invert the brightness of both domains.
        colour: with ``intensity``, that of each channel by itself: grey ink becomes coloured.
    """

    uses_target: ClassVar[bool] = True

    flip: bool = False
    intensity: bool = False
    colour: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.colour and not self.intensity:
            raise AcclimateError("expected intensity=true with colour=true, got intensity=false")

    def relit(self, images: Tensor, batch: Batch) -> Tensor:
        """Float images between 0 and 1, in another light if that is asked for."""
        return relit(images, batch.generator, channels=self.colour) if self.intensity else images


@METHODS.register("vanilla")
@dataclass(frozen=True, kw_only=True)
class Vanilla(Cropping):
    """Cross-entropy on images that are cropped and, where that makes sense, mirrored."""

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        """Mean cross-entropy."""
        logits, _ = forward(batch.normalize(self.cropped(batch.images, batch)))
        return functional.cross_entropy(logits.float(), batch.labels)
