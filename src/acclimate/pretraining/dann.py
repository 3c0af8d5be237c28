"""Domain-adversarial training: features that source and target share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from acclimate.parts.base import option
from acclimate.pretraining.methods import METHODS, Batch, Forward, Relighting

__all__ = ["Dann", "reversal", "reversed_gradient"]


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradients[0], None


def reversed_gradient(x: Tensor, strength: float) -> Tensor:
    """The same numbers; in the backward pass their gradient is reversed.

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
class Dann(Relighting):
    """Domain-adversarial training (Ganin & Lempitsky 2015).

    A head learns to distinguish source and target by the features; its gradient, reversed, teaches
    the model features that do not distinguish them.

    Attributes:
        strength: what the reversed gradient grows to. 1, as published, is not the best for a deep
            network, which fools the head with classes of the target mapped onto other classes of
            the source: from MNIST to MNIST-M with wrn-26-2-bn, ``intensity``, ``colour`` and
            ``margin=2`` (SGD at 0.02, 8 epochs, one seed) 34.1 % of the target end up wrong at 1,
            and 26.0 % at 0.1. How the head is shown the domains mattered less: one at a time,
            with its batch norm hiding shifts of the mean from it, 26.6 % were wrong at 0.3.
        delay: the share of the training before it begins to grow; by then there are classes.
    """

    revision: ClassVar[int] = 2  # before, the judge saw one domain at a time

    strength: float = option(1.0, low=0)
    delay: float = option(0.0, low=0, high=1, open_high=True)
    margin: int = 0

    def heads(self, model: nn.Module, features: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(features, 100), nn.BatchNorm1d(100), nn.ReLU(), nn.Linear(100, 2)
        )

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        assert batch.target is not None
        domains = (batch.images, batch.target)
        # The model sees one after the other, since mixed they would share their batch statistics;
        # the judge sees both at once, since its batch norm would hide what sets them apart.
        (logits, source), (_, target) = [
            forward(batch.normalize(self.relit(self.cropped(images, batch), batch)))
            for images in domains
        ]
        since = max(0.0, batch.progress - self.delay) / (1 - self.delay)
        features = torch.cat([source.float(), target.float()])
        judged = heads(reversed_gradient(features, self.strength * reversal(since)))
        truth = torch.cat(
            [
                torch.full((len(images),), domain, device=images.device)
                for domain, images in enumerate(domains)
            ]
        )
        classes = functional.cross_entropy(logits.float(), batch.labels)
        return classes + functional.cross_entropy(judged.float(), truth)
