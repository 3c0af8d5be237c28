"""The one public call: a batch, a name and a severity in, the shifted batch out."""

from __future__ import annotations

import zlib
from typing import Any, overload

import numpy as np
from torch import Tensor

from acclimate.data.corruptions._batch import from_batch, to_batch
from acclimate.data.corruptions._constants import DEV, TEST, Preset, constants
from acclimate.data.corruptions._pixels import Pixels, grey_to_rgb, rgb_to_grey
from acclimate.data.corruptions._registry import REGISTRY, Corruption
from acclimate.errors import AcclimateError, unknown_name

__all__ = ["corrupt", "corruptions"]


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
def corrupt(
    images: Pixels | Tensor,
    name: str,
    severity: int,
    *,
    preset: Preset,
    seed: int = 0,
    start: int = 0,
) -> Pixels | Tensor:
    """Corrupt a batch of pictures as ImageNet-C or CIFAR-10-C would.

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

    >>> images = np.full((2, 32, 32, 3), 128, dtype=np.uint8)
    >>> shifted = corrupt(images, "fog", 3, preset="cifar")
    >>> shifted.shape, shifted.dtype
    ((2, 32, 32, 3), dtype('uint8'))
    >>> alone = corrupt(images[1:], "fog", 3, preset="cifar", start=1)
    >>> bool((alone == shifted[1:]).all())
    True
    """
    if name not in REGISTRY:
        raise unknown_name("corruption", str(name), corruptions())
    numbers = constants(name, severity, preset=preset)
    for what, value in (("seed", seed), ("start", start)):
        if not hasattr(value, "__index__") or value < 0:
            raise AcclimateError(f"expected {what} to be an integer >= 0, got {value!r}")
    batch = to_batch(images)
    # Key the stream by name, not by a position in a list, which would move when names are added.
    key = (zlib.crc32(name.encode()), int(severity))
    out = np.empty(batch.shape, dtype=np.uint8)
    for i, image in enumerate(batch):
        entropy = [int(seed), int(start) + i, *key]
        out[i] = _corrupt_one(REGISTRY[name], image, entropy, numbers)
    return from_batch(out, like=images)


def _corrupt_one(
    entry: Corruption, image: Pixels, entropy: list[int], numbers: dict[str, Any]
) -> Pixels:
    lift = entry.colour and image.shape[-1] == 1
    source = grey_to_rgb(image) if lift else image
    if entry.random:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
        out = entry.apply(source, rng, **numbers)
    else:
        out = entry.apply(source, **numbers)
    return rgb_to_grey(out) if lift else out
