"""Pixels between uint8, floating point, grey and Pillow."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["Pixels", "from_picture", "grey_to_rgb", "quantize", "rgb_to_grey", "to_picture"]

Pixels: TypeAlias = NDArray[np.uint8]

# ITU-R 601 luma in units of 2**-16, as Pillow has it; their sum is 1, so greys stay as they are.
_LUMA = np.array([19595, 38470, 7471], dtype=np.uint32)


def quantize(values: NDArray[np.floating[Any]]) -> Pixels:
    """Clip values on the scale 0 to 255 and cut their fractions off.

    Rounding would be kinder by half a grey level, but the published benchmarks truncate.

    >>> quantize(np.array([-3.0, 7.9, 300.0]))
    array([  0,   7, 255], dtype=uint8)
    """
    clipped: NDArray[np.floating[Any]] = np.clip(values, 0, 255)
    return clipped.astype(np.uint8)


def grey_to_rgb(image: Pixels) -> Pixels:
    """Three equal channels from one."""
    return np.repeat(image, 3, axis=-1)


def rgb_to_grey(image: Pixels) -> Pixels:
    """One channel of luma from three; undoes `grey_to_rgb` exactly.

    >>> int(rgb_to_grey(np.array([[[200, 200, 200]]], dtype=np.uint8))[0, 0, 0])
    200
    """
    luma = (image @ _LUMA + 2**15) >> 16
    return luma.astype(np.uint8)[..., None]


def to_picture(image: Pixels) -> Image.Image:
    """A Pillow picture, grey or RGB by the number of channels."""
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def from_picture(picture: Image.Image) -> Pixels:
    """The way back from `to_picture`, with the channel axis that Pillow drops for grey."""
    array = np.asarray(picture, dtype=np.uint8)
    return array[..., None] if array.ndim == 2 else array
