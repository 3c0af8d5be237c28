"""Ways to train on a source with labels and a target without: DANN and UDA-SS."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from acclimate.errors import AcclimateError
from acclimate.pretraining.augment import crop_and_flip, relit
from acclimate.pretraining.methods import METHODS, Batch, Forward, Method

__all__ = ["Dann", "UdaSs", "reversal", "reversed_gradient"]


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


def reversed_gradient(x: Tensor, strength: float) -> Tensor:
    """The same numbers; on the way back their gradient is turned round.

    >>> x = torch.ones(1, requires_grad=True)
    >>> reversed_gradient(x, 0.5).sum().backward()
    >>> x.grad
    tensor([-0.5000])
    """
    turned: Tensor = _Reversed.apply(x, strength)  # type: ignore[no-untyped-call]
    return turned


def reversal(progress: float) -> float:
    """How strongly, by how far the training is: from 0 towards 1.

    >>> reversal(0.0), round(reversal(0.5), 3)
    (0.0, 0.987)
    """
    return 2 / (1 + math.exp(-10 * progress)) - 1


@METHODS.register("dann")
@dataclass(frozen=True, kw_only=True)
class Dann(Method):
    """Domain-adversarial training (Ganin & Lempitsky 2015).

    A head learns to tell source from target by the features; its gradient, turned round, teaches
    the model features it cannot tell them by.

    Attributes:
        strength: what the turned gradient grows to. At 1, as published, a deep network soon fools
            the head with classes of the target that lie on other classes of the source.
        delay: the share of the training before it begins to grow; by then there are classes.
        flip: mirror pictures.
        margin: by how many pixels to move them.
        intensity: change and invert the brightness of both domains, as self-ensembling may.
    """

    uses_target: ClassVar[bool] = True

    strength: float = 1.0
    delay: float = 0.0
    flip: bool = False
    margin: int = 0
    intensity: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.strength) and self.strength >= 0):
            raise AcclimateError(f"expected a strength >= 0, got {self.strength}")
        if not 0 <= self.delay < 1:
            raise AcclimateError(f"expected a delay >= 0 and < 1, got {self.delay}")

    def heads(self, model: nn.Module, features: int) -> nn.Module:
        """The judge of domains."""
        return nn.Sequential(
            nn.Linear(features, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Linear(100, 2)
        )

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy of the source's classes plus that of the domains."""
        assert batch.target is not None
        # One after the other: mixed in a batch, the two would share their batch statistics.
        losses = []
        for domain, images in enumerate((batch.images, batch.target)):
            seen = crop_and_flip(images, batch.generator, margin=self.margin, flip=self.flip) / 255
            if self.intensity:
                seen = relit(seen, batch.generator)
            logits, features = forward(batch.normalize(seen))
            if domain == 0:
                losses.append(functional.cross_entropy(logits.float(), batch.labels))
            since = max(0.0, batch.progress - self.delay) / (1 - self.delay)
            strength = self.strength * reversal(since)
            judged = heads(reversed_gradient(features.float(), strength))
            truth = torch.full((len(images),), domain, device=images.device)
            losses.append(functional.cross_entropy(judged.float(), truth))
        return torch.stack(losses).sum()


@METHODS.register("uda-ss")
@dataclass(frozen=True, kw_only=True)
class UdaSs(Method):
    """Adaptation by self-supervision (Sun et al. 2019).

    Beside the classes of the source, the model learns tasks that need no labels on both domains:
    by how much a picture was turned, whether it was put upside down, which quarter it is of.

    Attributes:
        tasks: which of them.
        flip: mirror the pictures whose classes are learnt.
        margin: by how many pixels to move those.
        intensity: change and invert the brightness everywhere, as self-ensembling may.
    """

    uses_target: ClassVar[bool] = True

    tasks: tuple[str, ...] = ("rotation", "flip", "location")
    flip: bool = False
    margin: int = 4
    intensity: bool = False

    def heads(self, model: nn.Module, features: int) -> nn.Module:
        """A linear layer for each task."""
        return nn.ModuleDict({task: nn.Linear(features, _TASKS[task][1]) for task in self.tasks})

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy of the source's classes plus that of each task on both domains."""
        assert batch.target is not None
        images = crop_and_flip(batch.images, batch.generator, margin=self.margin, flip=self.flip)
        logits, _ = forward(batch.normalize(self._lit(images, batch)))
        total = functional.cross_entropy(logits.float(), batch.labels)
        for task in self.tasks:
            make, kinds = _TASKS[task]
            for domain in (batch.images, batch.target):
                answer = torch.randint(
                    0, kinds, (len(domain),), generator=batch.generator, device=domain.device
                )
                posed = make(self._lit(domain, batch), answer)
                _, features = forward(batch.normalize(posed))
                assert isinstance(heads, nn.ModuleDict)
                total = total + functional.cross_entropy(heads[task](features).float(), answer)
        return total

    def _lit(self, images: Tensor, batch: Batch) -> Tensor:
        unit = images.float() / 255
        return relit(unit, batch.generator) if self.intensity else unit


def _turned(images: Tensor, quarters: Tensor) -> Tensor:
    """Each picture turned by so many quarters of a circle."""
    turns = torch.stack([images.rot90(k, dims=(2, 3)) for k in range(4)])
    return turns[quarters, torch.arange(len(images), device=images.device)]


def _upside_down(images: Tensor, whether: Tensor) -> Tensor:
    return torch.where(whether.bool()[:, None, None, None], images.flip(2), images)


def _quarter(images: Tensor, which: Tensor) -> Tensor:
    """One quarter of each picture, half as wide and high."""
    height, width = images.shape[2] // 2, images.shape[3] // 2
    corners = [(0, 0), (0, width), (height, 0), (height, width)]
    quarters = torch.stack(
        [images[:, :, top : top + height, left : left + width] for top, left in corners]
    )
    return quarters[which, torch.arange(len(images), device=images.device)]


_TASKS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "rotation": (_turned, 4),
    "flip": (_upside_down, 2),
    "location": (_quarter, 4),
}
