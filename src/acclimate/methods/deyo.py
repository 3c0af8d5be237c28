"""DeYO, destroy your object (Lee et al., ICLR 2024): entropy is not enough for trust.

A prediction is trusted if it depends on the shape of things. Cut into patches and put together in
random order, an image has lost its shapes; how much its pseudo-label ŷ = argmax p(x) loses by it is
the pseudo-label probability difference, PLPD = p_ŷ(x) - p_ŷ(x'). Entropy is minimised over the
images with H(p) < τ_H and PLPD > τ_PLPD, the mean over those of α(x) H(p(x)):

    α(x) = exp(E0 - H(p)) + exp(PLPD)

without gradients through α, and over scale and shift of the normalisation layers but those of the
last stages, which stay as in SAR (see :mod:`acclimate.methods.sar`).

Defaults are the authors' for ImageNet and a ResNet-50: τ_H = 0.5 log C, E0 = 0.4 log C, τ_PLPD =
0.2, 4 × 4 patches; SGD with momentum 0.9, rate 0.00025, batches of 64. Their runs over one
corruption at a time, with batch norm, take τ_PLPD = 0.3, those where shapes are all that can be
trusted (biased data) 0.5.

What differs: nothing in the formulas. As in the authors' code only images below τ_H are shown again
(all images where it is just one, which would have no batch statistics), and one whose sides
the patches do not divide is resized to the next smaller size they do, and back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.methods.sar import EarlyAffine
from acclimate.methods.tent import TENT
from acclimate.methods.views import Drawing, Draws, sides
from acclimate.parts.base import PARTS, Step, option
from acclimate.parts.filters import EntropyMargin
from acclimate.parts.objectives import entropy

__all__ = ["DEYO", "ShapeBound", "shuffled_patches"]


def shuffled_patches(images: Tensor, patches: int, *, generator: torch.Generator) -> Tensor:
    """Each image cut into patches × patches pieces, put together in an order of its own.

    >>> image = torch.arange(4.0).view(1, 1, 2, 2)
    >>> mixed = shuffled_patches(image, 2, generator=torch.Generator().manual_seed(0))
    >>> mixed.flatten().sort().values
    tensor([0., 1., 2., 3.])
    """
    height, width = sides(images)
    rows, columns = min(patches, height), min(patches, width)
    # Drawn where the generator is: from one on the CPU, a seed means the same order anywhere.
    draws = torch.rand(len(images), rows * columns, generator=generator, device=generator.device)
    order = draws.argsort(dim=1).to(images.device)
    even = (height - height % rows, width - width % columns)
    whole = images if even == (height, width) else F.interpolate(images, even, mode="bilinear")
    patch = (even[0] // rows, even[1] // columns)
    pieces = F.unfold(whole, patch, stride=patch)
    mixed = pieces.gather(2, order[:, None].expand_as(pieces))
    shuffled = F.fold(mixed, even, patch, stride=patch)
    if even == (height, width):
        return shuffled
    return F.interpolate(shuffled, (height, width), mode="bilinear")


@PARTS["filter"].register("shape-bound")
@dataclass(frozen=True, kw_only=True)
class ShapeBound(Drawing, EntropyMargin):
    """Reliable images whose label loses probability when their patches are shuffled.

    ``margin`` and ``weight_margin`` are shares of log C, ``min_difference`` is a probability.
    """

    shareable = False

    margin: float = 0.5
    weight_margin: float = option(0.4, low=0)
    min_difference: float = option(0.2, low=-1, high=1)
    patches: int = option(4, low=1)

    def weights(self, state: Draws, step: Step) -> Tensor:
        """exp(E0 - entropy) + exp(difference) for those that count, 0 for the rest."""
        shuffled = shuffled_patches(step.images, self.patches, generator=state.generator)
        logits = step.student.logits.detach()
        reliable = self.reliable(logits)
        found = int(reliable.sum())
        if not found:
            return torch.zeros_like(logits[:, 0])
        shown = reliable if found > 1 else torch.ones_like(reliable)
        difference = torch.zeros_like(logits[:, 0])
        difference[shown] = self._difference(step, logits[shown], shuffled[shown])
        counts = reliable & ~(difference <= self.min_difference)
        limit = self.weight_margin * math.log(logits.shape[1])
        return torch.where(counts, (limit - entropy(logits)).exp() + difference.exp(), 0.0)

    def _difference(self, step: Step, logits: Tensor, shuffled: Tensor) -> Tensor:
        """What the labels of some images lose with the shapes."""
        probability = logits.softmax(dim=1)
        labels = probability.argmax(dim=1, keepdim=True)
        with torch.no_grad():
            again = step.learner.forward(shuffled, learning=False).logits
        return (probability - again.softmax(dim=1)).gather(1, labels).squeeze(1)


DEYO = replace(
    TENT,
    name="deyo",
    summary="DeYO: entropy of images whose label depends on shapes (Lee et al. 2024)",
    selector=EarlyAffine(),
    filter=ShapeBound(),
)
