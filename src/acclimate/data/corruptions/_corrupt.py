"""The one public call: a batch, a name and a severity in, the shifted batch out."""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import Tensor

from acclimate.corruption_names import DEV, TEST
from acclimate.data.corruptions._batch import from_batch, to_batch
from acclimate.data.corruptions._constants import Preset, constants
from acclimate.data.corruptions._draws import Draws, picture_keys
from acclimate.data.corruptions._pixels import Pixels, grey_to_rgb, quantize, rgb_to_grey
from acclimate.data.corruptions._registry import REGISTRY, Corruption
from acclimate.errors import AcclimateError

__all__ = ["corrupt", "corrupt_numbered", "corruptions"]

# Values worked on at once: what a core's cache holds of float32 temporaries; what keeps a GPU busy.
_VALUES_ON_CPU = 2**18
_VALUES_ON_GPU = 2**26
_VALUES_OF_MANY = 2**23


def corruptions() -> list[str]:
    """The names `corrupt` knows, in the benchmark's order: the test corruptions, then dev.

    >>> corruptions()[:3]
    ['gaussian_noise', 'shot_noise', 'impulse_noise']
    """
    return [name for name in (*TEST, *DEV) if name in REGISTRY]


@overload
def corrupt(
    images: Pixels, name: str, severity: int, *, preset: Preset, seed: int = 0, start: int = 0
) -> Pixels: ...
@overload
def corrupt(
    images: Tensor, name: str, severity: int, *, preset: Preset, seed: int = 0, start: int = 0
) -> Tensor: ...
@torch.no_grad()
def corrupt(
    images: Pixels | Tensor,
    name: str,
    severity: int,
    *,
    preset: Preset,
    seed: int = 0,
    start: int = 0,
) -> Pixels | Tensor:
    """Corrupt a batch of pictures as ImageNet-C or CIFAR-10-C would, where the batch lies.

    Image ``i`` draws its randomness from ``(seed, start + i, name, severity)`` alone, so a data
    set comes out the same however it is cut into batches: pass as ``start`` the index of the
    first image of the batch. Sides may differ and be as short as 4 px. A one-channel picture is
    three equal channels: where a corruption brings colour, its luma is returned.

    Args:
        images: uint8, an array N×H×W×3, N×H×W×1 or N×H×W, or a tensor N×3×H×W or N×1×H×W.
        name: one of `corruptions`.
        severity: 1 (mild) to 5.
        preset: whose constants: ``"imagenet"`` (made for 224 px) or ``"cifar"`` (for 32 px).
        seed: another seed, another draw; 0 or more.
        start: the index of the first image in its data set; 0 or more.

    Returns:
        New images of the same kind, shape, dtype and device.

    >>> import numpy as np
    >>> images = np.full((2, 32, 32, 3), 128, dtype=np.uint8)
    >>> shifted = corrupt(images, "fog", 3, preset="cifar")
    >>> shifted.shape, shifted.dtype
    ((2, 32, 32, 3), dtype('uint8'))
    >>> alone = corrupt(images[1:], "fog", 3, preset="cifar", start=1)
    >>> bool((alone == shifted[1:]).all())
    True
    """
    for what, value in (("seed", seed), ("start", start)):
        if not hasattr(value, "__index__") or value < 0:
            raise AcclimateError(f"expected {what} to be an integer >= 0, got {value!r}")
    settings = constants(name, severity, preset=preset)
    batch = to_batch(images)
    numbers = torch.arange(start, start + len(batch))
    keys = picture_keys(numbers, seed=int(seed), name=name, severity=int(severity))
    return from_batch(_corrupt_batch(REGISTRY[name], batch, keys, settings), like=images)


@torch.no_grad()
def corrupt_numbered(
    images: Tensor, numbers: Tensor, name: str, severity: int, *, preset: Preset, seed: int = 0
) -> Tensor:
    """`corrupt` for uint8 pictures N×C×H×W of any numbers in their data set, in any order."""
    settings = constants(name, severity, preset=preset)
    keys = picture_keys(numbers, seed=seed, name=name, severity=severity)
    return _corrupt_batch(REGISTRY[name], to_batch(images), keys, settings)


def _corrupt_batch(
    entry: Corruption, batch: Tensor, keys: Tensor, settings: dict[str, Any]
) -> Tensor:
    device = torch.device("cpu") if entry.host else batch.device
    keys = keys.to(device)
    size = _chunk_size(entry, batch, device)
    if 0 < len(batch) <= size:
        return _corrupt_chunk(entry, batch.to(device), keys, settings).to(batch.device)
    out = torch.empty_like(batch)
    for first in range(0, len(batch), size):
        part = slice(first, first + size)
        out[part] = _corrupt_chunk(entry, batch[part].to(device), keys[part], settings)
    return out


def _chunk_size(entry: Corruption, batch: Tensor, device: torch.device) -> int:
    on_cpu = _VALUES_OF_MANY if entry.many else _VALUES_ON_CPU
    values = on_cpu if device.type == "cpu" else _VALUES_ON_GPU
    return max(1, values // max(1, batch[:1].numel()))


def _corrupt_chunk(
    entry: Corruption, images: Tensor, keys: Tensor, settings: dict[str, Any]
) -> Tensor:
    lift = entry.colour and images.shape[1] == 1
    source = grey_to_rgb(images) if lift else images
    draws = (Draws(keys),) if entry.random else ()
    out = entry.apply(source, *draws, **settings)
    if out.dtype != torch.uint8:
        out = quantize(out)
    return rgb_to_grey(out) if lift else out
