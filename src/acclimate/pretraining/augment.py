"""The usual augmentation of small images, on their device."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from acclimate.errors import AcclimateError

__all__ = ["crop_and_flip", "recoloured", "relit"]

_TO_YIQ = torch.tensor(
    [[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]]
)
_FROM_YIQ = torch.linalg.inv(_TO_YIQ)


def crop_and_flip(
    images: Tensor, generator: torch.Generator, *, margin: int = 4, flip: bool = True
) -> Tensor:
    """Each image moved by up to ``margin`` px within its reflection, and half of them mirrored.

    >>> images = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4)
    >>> same = crop_and_flip(images, torch.Generator(), margin=0, flip=False)
    >>> torch.equal(same, images)
    True
    """
    count, _, height, width = images.shape
    if not 0 <= margin < min(height, width):
        raise AcclimateError(
            f"expected a margin >= 0 and < {min(height, width)}, the side of the images, "
            f"got {margin}"
        )
    device = images.device
    padded = functional.pad(images.float(), (margin,) * 4, mode="reflect").to(images.dtype)
    down, right = torch.randint(
        0, 2 * margin + 1, (2, count, 1), generator=generator, device=device
    )
    rows = torch.arange(height, device=device) + down
    columns = torch.arange(width, device=device).expand(count, -1)
    if flip:
        mirrored = torch.rand(count, 1, generator=generator, device=device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    image = torch.arange(count, device=device)[:, None, None]
    chosen = padded.permute(0, 2, 3, 1)[image, rows[:, :, None], (columns + right)[:, None]]
    return chosen.permute(0, 3, 1, 2)


def recoloured(
    images: Tensor,
    generator: torch.Generator,
    *,
    jitter: float = 0.4,
    often: float = 0.8,
    grey: float = 0.2,
) -> Tensor:
    """Float images, 0 to 1, in another light: DINO's colour jitter, and some of them grey.

    Most of them (``often``) change in brightness and contrast by up to ``jitter``, in saturation
    by half of that and in hue by a tenth of the circle; grey ones have no colour to change.

    >>> lit = recoloured(torch.rand(4, 3, 8, 8), torch.Generator())
    >>> lit.shape, bool((lit >= 0).all() and (lit <= 1).all())
    (torch.Size([4, 3, 8, 8]), True)
    """
    count, device = len(images), images.device

    def around(middle: float, radius: float) -> Tensor:
        drawn = 2 * torch.rand(count, generator=generator, device=device) - 1
        return torch.where(changes, middle + radius * drawn, middle)[:, None, None, None]

    changes = torch.rand(count, generator=generator, device=device) < often
    light, contrast = around(1, jitter), around(1, jitter)
    if images.shape[1] == 3:
        strength, angle = around(1, jitter / 2), around(0, math.tau / 10)
        kept = torch.rand(count, 1, 1, 1, generator=generator, device=device) >= grey
        # Brightness, and the two axes of colour: turned they change hue, shortened saturation.
        y, i, q = torch.einsum("ij,njhw->inhw", _TO_YIQ.to(images), images)[:, :, None]
        cosine, sine = strength * kept * angle.cos(), strength * kept * angle.sin()
        turned = torch.cat([y, cosine * i - sine * q, sine * i + cosine * q], dim=1)
        images = torch.einsum("ij,njhw->nihw", _FROM_YIQ.to(images), turned)
    lit = images * light
    mean = lit.mean(dim=(1, 2, 3), keepdim=True)
    return (mean + (lit - mean) * contrast).clamp(0, 1)


def relit(images: Tensor, generator: torch.Generator, *, channels: bool = False) -> Tensor:
    """Float images scaled in brightness by 0.25 to 1.5, shifted, and half of them inverted.

    The intensity augmentation of self-ensembling (French et al. 2018), made for digits whose ink
    may be brighter or darker than the paper. With ``channels`` each channel is changed by itself,
    which gives grey images a colour.

    >>> relit(torch.rand(4, 3, 8, 8), torch.Generator()).shape
    torch.Size([4, 3, 8, 8])
    """

    drawn = (*images.shape[:2], 1, 1) if channels else (len(images), 1, 1, 1)

    def uniform() -> Tensor:
        return torch.rand(drawn, generator=generator, device=images.device)

    inverted = torch.where(uniform() < 0.5, 1 - images, images)
    scaled = (inverted - 0.5) * (0.25 + 1.25 * uniform()) + 0.5
    return (scaled + uniform() - 0.5).clamp(0, 1)
