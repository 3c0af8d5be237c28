"""The usual augmentation of small pictures, on the device they lie on."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["crop_and_flip"]


def crop_and_flip(
    images: Tensor, generator: torch.Generator, *, margin: int = 4, flip: bool = True
) -> Tensor:
    """Each picture moved by up to ``margin`` px within its reflection, and half of them mirrored.

    >>> images = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4)
    >>> same = crop_and_flip(images, torch.Generator(), margin=0, flip=False)
    >>> torch.equal(same, images)
    True
    """
    count, _, height, width = images.shape
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
    picture = torch.arange(count, device=device)[:, None, None]
    chosen = padded.permute(0, 2, 3, 1)[picture, rows[:, :, None], (columns + right)[:, None]]
    return chosen.permute(0, 3, 1, 2)
