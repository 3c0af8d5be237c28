"""The kinds of image batch that are taken, and the way back to the same kind."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from acclimate.data.corruptions._pixels import Pixels
from acclimate.errors import AcclimateError

__all__ = ["from_batch", "to_batch"]

_SMALLEST = 4  # Below this, a forgotten batch axis (H × W × 3) could pass for grey pictures.


def to_batch(images: Pixels | Tensor) -> Pixels:
    """Any accepted batch as one uint8 array N × height × width × channels.

    >>> to_batch(torch.zeros(2, 3, 8, 9, dtype=torch.uint8)).shape
    (2, 8, 9, 3)
    >>> to_batch(np.zeros((2, 8, 9), dtype=np.uint8)).shape
    (2, 8, 9, 1)
    """
    if isinstance(images, Tensor):
        _check_dtype(images.dtype, expected=torch.uint8)
        channels_last = images.movedim(1, -1) if images.ndim == 4 else images
        batch = np.ascontiguousarray(channels_last.numpy(force=True))
        accepted = "N×3×H×W or N×1×H×W"
    elif isinstance(images, np.ndarray):
        _check_dtype(images.dtype, expected=np.dtype(np.uint8))
        batch = images[..., None] if images.ndim == 3 else images
        accepted = "N×H×W×3, N×H×W×1 or N×H×W"
    else:
        raise AcclimateError(f"expected a numpy array or a tensor, got {type(images).__name__}")
    if batch.ndim != 4 or batch.shape[-1] not in (1, 3) or min(batch.shape[1:3]) < _SMALLEST:
        raise AcclimateError(
            f"expected a batch of {accepted} with sides of at least {_SMALLEST} px, "
            f"got shape {tuple(images.shape)}; a single picture needs a leading axis (images[None])"
        )
    return batch


def from_batch(batch: Pixels, *, like: Pixels | Tensor) -> Pixels | Tensor:
    """The kind, shape and device of ``like``, with the pixels of ``batch``."""
    if isinstance(like, Tensor):
        return torch.from_numpy(batch).movedim(-1, 1).contiguous().to(like.device)
    return batch.reshape(like.shape)


def _check_dtype(
    got: torch.dtype | np.dtype[np.generic], *, expected: torch.dtype | np.dtype[np.generic]
) -> None:
    if got != expected:
        raise AcclimateError(
            f"expected uint8 images with values 0 to 255, got {got}; "
            "corrupt before scaling and normalising"
        )
