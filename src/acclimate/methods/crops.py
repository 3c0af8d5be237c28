"""Random resized crops of a batch, on its own device."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = ["random_crops", "sides"]


def sides(images: Tensor) -> tuple[int, int]:
    """Height and width of pictures; anything else has no views, and is refused.

    >>> sides(torch.zeros(2, 3, 16, 8))
    (16, 8)
    """
    if images.ndim != 4:
        got = "×".join(map(str, images.shape))
        raise AcclimateError(
            f"expected pictures as N×C×H×W to make other views of, got {got}; choose a recipe that "
            "looks at the input alone, as tent, eata or shot-im"
        )
    return images.shape[2], images.shape[3]


def random_crops(
    images: Tensor,
    scale: tuple[float, float],
    *,
    generator: torch.Generator,
    size: int | None = None,
) -> Tensor:
    """One crop per image: an area of ``scale``, an aspect of 3:4 to 4:3, flipped half the time.

    >>> images = torch.rand(2, 3, 16, 16)
    >>> random_crops(images, (0.2, 0.5), generator=torch.Generator(), size=8).shape
    torch.Size([2, 3, 8, 8])
    """
    height, width = sides(images)
    n, channels = images.shape[:2]

    def draw(low: float, high: float) -> Tensor:
        # Drawn where the generator is: from one on the CPU, a seed means the same crops anywhere.
        return low + (high - low) * torch.rand(n, generator=generator, device=generator.device)

    area, aspect = draw(*scale), draw(math.log(3 / 4), math.log(4 / 3)).exp()
    wide, high = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    x, y = draw(-1, 1) * (1 - wide), draw(-1, 1) * (1 - high)
    flip = torch.where(draw(0, 1) < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(flip)
    rows = torch.stack([wide * flip, zero, x, zero, high, y], dim=1).view(n, 2, 3)
    shape = [n, channels, size or height, size or width]
    grid = F.affine_grid(rows.to(images), shape, align_corners=False)
    return F.grid_sample(images, grid, align_corners=False, padding_mode="reflection")
