"""The kinds of image batch that are taken, and the way back to the same kind."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from acclimate.data.corruptions._pixels import Pixels
from acclimate.errors import AcclimateError

__all__ = ["SMALLEST_SIDE", "from_batch", "to_batch"]

SMALLEST_SIDE = 4  # Below this, a forgotten batch axis (H × W × 3) could pass for grey pictures.


def to_batch(images: Pixels | Tensor) -> Tensor:
    """Any accepted batch as one uint8 tensor N × channels × height × width; arrays are not copied.

    >>> to_batch(np.zeros((2, 8, 9, 3), dtype=np.uint8)).shape
    torch.Size([2, 3, 8, 9])
    >>> to_batch(np.zeros((2, 8, 9), dtype=np.uint8)).shape
    torch.Size([2, 1, 8, 9])
    """
    if isinstance(images, Tensor):
        _check_dtype(images.dtype, expected=torch.uint8)
        batch = images.detach()
        accepted = "N×3×H×W or N×1×H×W"
    elif isinstance(images, np.ndarray):
        _check_dtype(images.dtype, expected=np.dtype(np.uint8))
        pixels = images[..., None] if images.ndim == 3 else images
        channels_last = torch.from_numpy(_readable(pixels))
        batch = channels_last.movedim(-1, 1) if channels_last.ndim == 4 else channels_last
        accepted = "N×H×W×3, N×H×W×1 or N×H×W"
    else:
        raise AcclimateError(f"expected a numpy array or a tensor, got {type(images).__name__}")
    if batch.ndim != 4 or batch.shape[1] not in (1, 3) or min(batch.shape[2:]) < SMALLEST_SIDE:
        raise AcclimateError(
            f"expected a batch of {accepted} with sides of at least {SMALLEST_SIDE} px, "
            f"got shape {tuple(images.shape)}; a single picture needs a leading axis (images[None])"
        )
    return batch


def from_batch(batch: Tensor, *, like: Pixels | Tensor) -> Pixels | Tensor:
    """The kind and shape of ``like``, with the pixels of ``batch``."""
    if isinstance(like, Tensor):
        return batch.contiguous()
    return batch.movedim(1, -1).contiguous().numpy().reshape(like.shape)


def _readable(pixels: Pixels) -> Pixels:
    # torch takes neither negative strides nor, without a warning, arrays it might write to.
    sound = pixels.flags.writeable and all(stride >= 0 for stride in pixels.strides)
    return pixels if sound else np.array(pixels)


def _check_dtype(
    got: torch.dtype | np.dtype[np.generic], *, expected: torch.dtype | np.dtype[np.generic]
) -> None:
    if got != expected:
        raise AcclimateError(
            f"expected uint8 images with values 0 to 255, got {got}; "
            "corrupt before scaling and normalising"
        )
