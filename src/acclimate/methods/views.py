"""Random views of a batch for methods that compare them, on the batch's own device.

A model's input is already normalised, and nothing here knows by what: images are moved, turned
and mirrored, and their light changes in units of their own spread, never in those of [0, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.parts.base import LearnerLike, Part

__all__ = [
    "Drawing",
    "Draws",
    "generator_on",
    "jittered",
    "lit",
    "moved",
    "per_image",
    "random_crops",
    "sides",
    "warped",
]


def sides(images: Tensor) -> tuple[int, int]:
    """Height and width of images; anything else has no views, and is refused.

    >>> sides(torch.zeros(2, 3, 16, 8))
    (16, 8)
    """
    if images.ndim != 4:
        got = "×".join(map(str, images.shape))
        raise AcclimateError(
            f"expected images as N×C×H×W to make other views of, got {got}; choose a recipe that "
            "takes the input unchanged: tent, eata or shot-im"
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
    return warped(images, rows, shape, beyond="reflection")


@dataclass
class Draws:
    """What a part draws from, where it remembers nothing else."""

    generator: torch.Generator


@dataclass(frozen=True, kw_only=True)
class Drawing(Part):
    """A part that draws from the run's own generator, and remembers nothing."""

    def prepare(self, learner: LearnerLike) -> Draws:
        return Draws(learner.generator)


def generator_on(device: torch.device, *, seeded_by: torch.Generator) -> torch.Generator:
    """A generator for draws so many that the CPU would take longer over them than the network.

    >>> draw = generator_on(torch.device("cpu"), seeded_by=torch.Generator().manual_seed(0))
    >>> torch.rand(3, generator=draw).shape
    torch.Size([3])
    """
    seed = torch.randint(2**62, (), generator=seeded_by, device=seeded_by.device)
    return torch.Generator(device).manual_seed(int(seed))


def jittered(images: Tensor, generator: torch.Generator, *, noise: float = 0.02) -> Tensor:
    """Images slightly turned, scaled, moved and mirrored, in another light, with some noise.

    As Wang et al. (2022) draw them: up to 15 degrees, a tenth in size, a sixteenth of the side,
    contrast by 0.7 to 1.3. Brightness changes by up to 0.8 and noise has 0.02 of the image's own
    standard deviation, which is what 0.4 and 0.005 are to a usual image in [0, 1]; saturation,
    hue and gamma need to know what white is, and stay.

    >>> jittered(torch.rand(2, 3, 8, 8), torch.Generator()).shape
    torch.Size([2, 3, 8, 8])
    """
    n, (height, width) = len(images), sides(images)
    angle = _uniform(n, generator, math.radians(15))
    size = 1 + _uniform(n, generator, 0.1)
    mirror = torch.where(_uniform(n, generator, 1.0) < 0, -1.0, 1.0)
    cosine, sine = angle.cos() / size, angle.sin() / size
    # Turned in pixels, whatever the image's shape; the grid counts in halves of each side.
    aspect = height / width
    across, down = (2 * _uniform(n, generator, 1 / 16) for _ in range(2))
    rows = [cosine * mirror, -sine * aspect, across, sine * mirror / aspect, cosine, down]
    seen = warped(images, torch.stack(rows, dim=1).view(n, 2, 3))
    return lit(seen, generator, contrast=0.3, brightness=0.8, noise=noise)


def lit(
    images: Tensor,
    generator: torch.Generator,
    *,
    contrast: float,
    brightness: float,
    noise: float = 0.0,
) -> Tensor:
    """Images in another light: contrast changed by a factor, brightness and noise added.

    Brightness and noise are in units of each image's own standard deviation.

    >>> torch.equal(lit(torch.ones(2, 3, 4, 4), torch.Generator(), contrast=0, brightness=1),
    ...             torch.ones(2, 3, 4, 4))
    True
    """
    n = len(images)
    factor, added = (_uniform(n, generator, radius) for radius in (contrast, brightness))
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    spread = images.std(dim=(1, 2, 3), keepdim=True, correction=0)
    seen = mean + (images - mean) * (1 + per_image(factor, images))
    seen = seen + spread * per_image(added, images)
    if noise:
        draw = generator_on(images.device, seeded_by=generator)
        grain = torch.randn(images.shape, generator=draw, device=images.device)
        seen = seen + spread * noise * grain.to(images.dtype)
    return seen


def moved(
    images: Tensor,
    generator: torch.Generator,
    *,
    flip: bool,
    affine: float,
    pixels: float = 2.0,
) -> Tensor:
    """Images moved by up to ``pixels``, mirrored with ``flip``, their axes bent by noise.

    The augmentation of self-ensembling (French et al. 2018).

    >>> moved(torch.rand(2, 3, 8, 8), torch.Generator(), flip=True, affine=0.1).shape
    torch.Size([2, 3, 8, 8])
    """
    n, device, (height, width) = len(images), generator.device, sides(images)
    maps = torch.eye(2, 3, device=device).repeat(n, 1, 1)
    maps[:, :, :2] += affine * torch.randn(n, 2, 2, generator=generator, device=device)
    lengths = torch.tensor([width, height], device=device)
    shift = torch.rand(n, 2, generator=generator, device=device) * 2 - 1
    maps[:, :, 2] = shift * 2 * pixels / lengths
    if flip:
        mirrored = torch.rand(n, generator=generator, device=device) < 0.5
        maps[:, 0] *= torch.where(mirrored, -1.0, 1.0)[:, None]
    return warped(images, maps)


def _uniform(n: int, generator: torch.Generator, radius: float) -> Tensor:
    # Drawn where the generator is: from one on the CPU, a seed means the same views anywhere.
    return radius * (2 * torch.rand(n, generator=generator, device=generator.device) - 1)


def per_image(values: Tensor, like: Tensor) -> Tensor:
    """One number for each image, to multiply it with."""
    return values.to(like)[:, None, None, None]


def warped(
    images: Tensor, maps: Tensor, shape: list[int] | None = None, *, beyond: str = "border"
) -> Tensor:
    """Images seen through affine maps (N × 2 × 3), and what lies ``beyond`` their edges."""
    grid = F.affine_grid(maps.to(images), shape or list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode=beyond, align_corners=False)
