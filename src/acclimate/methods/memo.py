"""MEMO: marginal entropy minimisation with one image (Zhang et al. 2021).

An image is augmented B times; the model, all of its parameters, takes one step towards confidence
in the *mean* of its predictions on the augmented copies, predicts the image, and is reset:

    L(x) = H( 1/B sum_b p(. | a_b(x)) ).

Defaults of the paper for a ResNet-50 on ImageNet: B = 64, SGD at 0.00025, one step, batch-norm
statistics of the source mixed with the image's own as 16 : 1. (For 32 px it has B = 32, SGD at
0.005, and crops of no less than about 0.7 of the image: ``objective.smallest_crop``.) As in the
published code the copies of an image count as one image in the mixture, their variance is the
unbiased one, and no gradient goes through the statistics.

What differs: the paper augments by a random crop, a flip and AugMix. Model input is already
normalised, so of AugMix's operations those that need values in [0, 1] (autocontrast, equalise,
posterise, solarise) give way to a change of contrast around the image's own mean; rotation,
shears and translations, their strengths and the way chains are mixed are AugMix's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.methods.views import Drawing, Draws, per_image, random_crops, warped
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.normalization import Mixture
from acclimate.parts.objectives import Objective
from acclimate.parts.optimizers import SGD
from acclimate.parts.selectors import All
from acclimate.parts.statistics import StatisticsControl
from acclimate.recipe import Recipe

__all__ = ["MEMO", "MarginalEntropy", "SingleImage", "marginal_entropy", "mixed"]

CHAINS, DEEPEST = 3, 3
_OPERATIONS = ("contrast", "rotate", "shear_x", "shear_y", "translate_x", "translate_y")
_STRENGTHS = (0.01, 0.3)


def marginal_entropy(logits: Tensor) -> Tensor:
    """Entropy of the mean prediction over copies: images × copies × classes to images.

    >>> confident = 50 * torch.eye(2)
    >>> marginal_entropy(torch.stack([confident[[0, 0]], confident])).round(decimals=4)
    tensor([0.0000, 0.6931])
    """
    log_p = F.log_softmax(logits, dim=2).logsumexp(dim=1) - math.log(logits.shape[1])
    return -(log_p.exp() * log_p).sum(dim=1)


def mixed(images: Tensor, generator: torch.Generator) -> Tensor:
    """Images mixed with chains of operations on themselves, AugMix's way, in any value range.

    >>> mixed(torch.rand(2, 3, 8, 8), torch.Generator()).shape
    torch.Size([2, 3, 8, 8])
    """
    n, where = len(images), generator.device

    def uniform(*shape: int) -> Tensor:
        # Drawn where the generator is: from one on the CPU, a seed means the same anywhere.
        return torch.rand(*shape, generator=generator, device=where)

    # A Dirichlet draw with parameter 1 is exponential draws over their sum.
    weights = -torch.log1p(-uniform(n, CHAINS))
    weights, share = weights / weights.sum(dim=1, keepdim=True), uniform(n)
    mixture = torch.zeros_like(images)
    for chain in range(CHAINS):
        depth = torch.randint(1, DEEPEST + 1, (n,), generator=generator, device=where)
        maps = torch.eye(3, device=where).repeat(n, 1, 1)
        contrast = torch.ones(n, device=where)
        for step in range(DEEPEST):
            which = torch.randint(len(_OPERATIONS), (n,), generator=generator, device=where)
            low, high = _STRENGTHS
            amount = (low + (high - low) * uniform(n)) * torch.where(uniform(n) < 0.5, -1.0, 1.0)
            amount = torch.where(step < depth, amount, 0.0)
            maps = maps @ _map(which, amount, aspect=images.shape[2] / images.shape[3])
            contrast = contrast * (1 + amount * (which == _OPERATIONS.index("contrast")))
        operated = _operated(images, maps[:, :2], contrast)
        mixture += per_image(weights[:, chain], images) * operated
    return torch.lerp(images, mixture, per_image(share, images))


def _map(which: Tensor, amount: Tensor, *, aspect: float) -> Tensor:
    """N × 3 × 3 maps of the operations drawn; by their strengths of 1, AugMix's largest."""

    def of(name: str) -> Tensor:
        return amount * (which == _OPERATIONS.index(name))

    angle = of("rotate") * math.radians(30)
    maps = torch.eye(3, device=amount.device).repeat(len(amount), 1, 1)
    maps[:, 0, 0] = maps[:, 1, 1] = angle.cos()
    # In pixels, whatever the image's shape; the grid counts in halves of each side.
    maps[:, 0, 1] = (of("shear_x") * 0.3 - angle.sin()) * aspect
    maps[:, 1, 0] = (of("shear_y") * 0.3 + angle.sin()) / aspect
    maps[:, 0, 2] = of("translate_x") * 2 / 3
    maps[:, 1, 2] = of("translate_y") * 2 / 3
    return maps


def _operated(images: Tensor, maps: Tensor, contrast: Tensor) -> Tensor:
    moved = warped(images, maps, beyond="reflection")
    mean = moved.mean(dim=(1, 2, 3), keepdim=True)
    return mean + (moved - mean) * per_image(contrast, images)


@dataclass
class UnbiasedControl(StatisticsControl):
    """Batch-norm layers that mix in the unbiased variance, and have no gradient through either."""

    def of_batch(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Statistics of an image and its copies."""
        mean, var = super().of_batch(x.detach())
        count = x.numel() // x.shape[1]
        return mean, var * (count / max(count - 1, 1))


@PARTS["normalization"].register("single-image")
@dataclass(frozen=True, kw_only=True)
class SingleImage(Mixture):
    """Source statistics worth ``prior`` images, mixed with one image's: its copies do not count."""

    def prepare(self, learner: LearnerLike) -> UnbiasedControl:
        """Find the layers."""
        return UnbiasedControl(super().prepare(learner).layers)

    def batch_weight(self, images: int) -> float:
        """1 / (N + 1)."""
        return super().batch_weight(1)


@PARTS["objective"].register("marginal-entropy")
@dataclass(frozen=True, kw_only=True)
class MarginalEntropy(Drawing, Objective):
    """Entropy of an image's mean prediction over ``augmentations`` copies.

    Crops have an area of ``smallest_crop`` and more of the image.
    """

    augmentations: int = option(64, low=1)
    smallest_crop: float = option(0.08, low=0, high=1, open_low=True)

    def views(self, state: Draws, images: Tensor) -> Sequence[Tensor]:
        """All copies in one batch, those of an image one after the other."""
        copies = images.repeat_interleave(self.augmentations, dim=0)
        cropped = random_crops(copies, (self.smallest_crop, 1.0), generator=state.generator)
        return [mixed(cropped, state.generator)]

    def loss(self, state: Draws, step: Step) -> Tensor:
        logits = step.student_of(step.views[0]).logits
        return marginal_entropy(logits.unflatten(0, (-1, self.augmentations)))


MEMO = Recipe(
    name="memo",
    summary="MEMO: marginal entropy over augmentations of each image alone (Zhang et al. 2021)",
    objective=MarginalEntropy(),
    selector=All(),
    normalization=SingleImage(prior=16),
    optimizer=SGD(lr=2.5e-4, momentum=0.0),
    episode="image",
    epochs=1,
    batch_size=64,
)
