"""Losses of storage and display: pixelation and JPEG compression."""

from __future__ import annotations

import functools
from collections.abc import Callable
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from acclimate.data.corruptions._registry import corruption

__all__ = ["jpeg_compression", "pixelate", "stored_as_jpeg"]


@corruption(many=True)
def pixelate(images: Tensor, *, scale: float) -> Tensor:
    """Shrink the picture by box averages and blow it up again."""
    height, width = images.shape[-2:]
    small = (max(1, int(width * scale)), max(1, int(height * scale)))
    if images.device.type == "cpu":  # Pillow shrinks faster there than a matrix does
        levels = _each(images, lambda picture: picture.resize(small, Image.Resampling.BOX))
    else:
        # Two passes, each rounded to eight bits, as Pillow does it.
        levels = images.to(torch.float32)
        levels = (levels @ _box_matrix(width, small[0], images.device).T).add_(0.5).floor_()
        levels = (_box_matrix(height, small[1], images.device) @ levels).add_(0.5).to(torch.uint8)
    # Selected in the memory order, which spares a pass over the result.
    pixels = levels.permute(0, 2, 3, 1)
    pixels = pixels.index_select(2, _nearest(width, small[0], images.device))
    pixels = pixels.index_select(1, _nearest(height, small[1], images.device))
    return pixels.permute(0, 3, 1, 2)


@corruption(many=True, host=True)
def jpeg_compression(images: Tensor, *, quality: int) -> Tensor:
    """Save as JPEG of this quality, with Pillow's default chroma subsampling, and read it back."""
    return stored_as_jpeg(images, quality=quality)


def stored_as_jpeg(images: Tensor, *, quality: int) -> Tensor:
    """uint8 pictures as they come back from JPEG files."""

    def stored(picture: Image.Image) -> Image.Image:
        buffer = BytesIO()
        picture.save(buffer, "JPEG", quality=quality)
        return Image.open(buffer, formats=("JPEG",))

    return _each(images, stored)


def _each(images: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Pictures changed one by one by Pillow, N×C×H×W in the memory order N×H×W×C."""
    pictures = images.permute(0, 2, 3, 1).numpy(force=True)
    if pictures.shape[-1] == 1:
        pictures = pictures[..., 0]
    first, *others = pictures
    changed = np.asarray(change(Image.fromarray(first)))
    together = np.empty((len(pictures), *changed.shape), np.uint8)
    together[0] = changed
    for place, pixels in zip(together[1:], others, strict=True):
        place[...] = np.asarray(change(Image.fromarray(pixels)))
    batch = torch.from_numpy(together)
    return batch[:, None] if batch.ndim == 3 else batch.permute(0, 3, 1, 2)


@functools.lru_cache(maxsize=32)
def _box_matrix(side: int, small: int, device: torch.device) -> Tensor:
    """``small`` × ``side``: equal weights for the pixels whose centres lie in a box."""
    scale = side / small
    centres = (np.arange(small) + 0.5) * scale
    first = np.maximum((centres - scale / 2 + 0.5).astype(int), 0)
    last = np.minimum((centres + scale / 2 + 0.5).astype(int), side)
    pixels = np.arange(side)
    inside = (pixels >= first[:, None]) & (pixels < last[:, None])
    return torch.from_numpy(inside / inside.sum(axis=1, keepdims=True)).to(device, torch.float32)


@functools.lru_cache(maxsize=32)
def _nearest(side: int, small: int, device: torch.device) -> Tensor:
    centres = (torch.arange(side, dtype=torch.float64) + 0.5) * (small / side)
    return centres.to(torch.int64).to(device)
