"""AugMix (Hendrycks et al. 2020): images mixed with chains of simple operations on themselves.

A whole batch at once: the geometric operations of a step are one affine map per image, and the
others are computed for all and picked where they were drawn, which on a GPU costs less than
sorting images by operation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from acclimate.parts.base import option
from acclimate.pretraining.methods import METHODS, Batch, Cropping, Forward

__all__ = ["OPERATIONS", "AugMix", "augmix"]

OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "solarize",
    "rotate",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
"""None of them is one of the corruptions that results are reported on."""

_LEVEL = 3.0


@METHODS.register("augmix")
@dataclass(frozen=True, kw_only=True)
class AugMix(Cropping):
    """AugMix with its Jensen-Shannon term.

    The model sees each image three times, plain and in two mixtures; its predictions are drawn
    together.
    """

    consistency: float = option(12.0, low=0)

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        plain = self.cropped(batch.images, batch)
        views = [plain, *(augmix(plain, batch.generator) for _ in range(2))]
        logits = forward(batch.normalize(torch.cat(views)))[0].float().chunk(3)
        probabilities = [each.softmax(dim=1) for each in logits]
        mean = torch.stack(probabilities).mean(dim=0).clamp(1e-7, 1).log()
        apart = [functional.kl_div(mean, p, reduction="batchmean") for p in probabilities]
        entropy = functional.cross_entropy(logits[0], batch.labels)
        return entropy + self.consistency * torch.stack(apart).mean()


def augmix(
    images: Tensor, generator: torch.Generator, *, chains: int = 3, deepest: int = 3
) -> Tensor:
    """Mix images with ``chains`` chains of up to ``deepest`` operations; float N×C×H×W, 0 to 1.

    The weights of the chains are drawn from a Dirichlet distribution, that of the image itself
    from a Beta distribution, both with parameter 1.

    >>> mixed = augmix(torch.rand(4, 3, 8, 8), torch.Generator().manual_seed(0))
    >>> mixed.shape, bool((mixed >= 0).all() and (mixed <= 1).all())
    (torch.Size([4, 3, 8, 8]), True)
    """
    count, device = len(images), images.device

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    # A Dirichlet draw with parameter 1 is exponential draws over their sum.
    weights = -torch.log1p(-uniform(count, chains))
    weights = weights / weights.sum(dim=1, keepdim=True)
    depths = torch.randint(1, deepest + 1, (count, chains), generator=generator, device=device)
    mixed = torch.zeros_like(images)
    for chain in range(chains):
        changed = images
        for step in range(deepest):
            which = torch.randint(0, len(OPERATIONS), (count,), generator=generator, device=device)
            strength = 0.1 + (_LEVEL - 0.1) * uniform(count)
            sign = torch.where(uniform(count) < 0.5, -1.0, 1.0)
            operated = _operated(changed, which, strength / 10, sign)
            deeper = (step < depths[:, chain])[:, None, None, None]
            changed = torch.where(deeper, operated, changed)
        mixed += weights[:, chain, None, None, None] * changed
    share = uniform(count, 1, 1, 1)
    return (1 - share) * images + share * mixed


def _operated(images: Tensor, which: Tensor, strength: Tensor, sign: Tensor) -> Tensor:
    """One operation for each image; ``strength`` from 0 to 1 scales those that have one."""
    moved = functional.grid_sample(
        images,
        functional.affine_grid(
            _maps(which, strength * sign, images), list(images.shape), align_corners=False
        ),
        mode="bilinear",
        padding_mode="zeros",
        align_corners=False,
    )
    out = moved
    tonal = (_autocontrasted, _equalized, _posterized, _solarized)  # in the order of OPERATIONS
    for index, operation in enumerate(tonal):
        candidate = operation(images, strength)
        out = torch.where((which == index)[:, None, None, None], candidate, out)
    return out


def _maps(which: Tensor, amount: Tensor, images: Tensor) -> Tensor:
    """N × 2 × 3: where the pixels of the result come from."""
    maps = torch.eye(2, 3, device=images.device).repeat(len(images), 1, 1)

    def of(name: str) -> Tensor:
        return (which == OPERATIONS.index(name)).to(amount.dtype) * amount

    angle = of("rotate") * math.radians(30)
    maps[:, 0, 0] = maps[:, 1, 1] = angle.cos()
    maps[:, 0, 1] = of("shear_x") * 0.3 - angle.sin()
    maps[:, 1, 0] = of("shear_y") * 0.3 + angle.sin()
    # A third of the image at most; the grid spans it from -1 to 1.
    maps[:, 0, 2] = of("translate_x") * 2 / 3
    maps[:, 1, 2] = of("translate_y") * 2 / 3
    return maps


def _autocontrasted(images: Tensor, _: Tensor) -> Tensor:
    low = images.amin(dim=(2, 3), keepdim=True)
    span = images.amax(dim=(2, 3), keepdim=True) - low
    return torch.where(span > 0, (images - low) / span.clamp(min=1e-6), images)


def _equalized(images: Tensor, _: Tensor) -> Tensor:
    """A flat histogram of every channel, in the whole numbers Pillow does it with."""
    flat = (images.flatten(2) * 255).round().long().clamp_(0, 255)
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.long, device=images.device)
    counts.scatter_add_(2, flat, torch.ones_like(flat))
    highest = flat.amax(dim=2, keepdim=True)
    step = (flat.shape[2] - counts.gather(2, highest)) // 255
    below = counts.cumsum(dim=2) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp_(max=255)
    out = (table.gather(2, flat).to(images.dtype) / 255).view_as(images)
    return torch.where((step > 0)[..., None], out, images)


def _posterized(images: Tensor, strength: Tensor) -> Tensor:
    """Keep the 4 highest bits at no strength, none at full."""
    bits = 4 - (strength * 4).floor()
    step = (2 ** (8 - bits))[:, None, None, None]
    return (images * 255 / step).floor() * step / 255


def _solarized(images: Tensor, strength: Tensor) -> Tensor:
    threshold = (1 - strength)[:, None, None, None]
    return torch.where(images < threshold, images, 1 - images)
