"""Pixels: the type, the way back to eight bits, grey and colour."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Pixels", "grey_to_rgb", "luma", "quantize", "rgb_to_grey"]

Pixels: TypeAlias = NDArray[np.uint8]

# ITU-R 601 luma in units of 2**-16, as Pillow has it; their sum is 1, so greys stay as they are.
_LUMA = (19595, 38470, 7471)
_ROUNDING = 2.0**-10


def quantize(values: Tensor) -> Tensor:
    """Clip values on the scale 0 to 255 and cut their fractions off. Overwrites ``values``.

    Rounding would be kinder by half a grey level, but the published benchmarks truncate. What is
    a hair below a whole number is that number: the hair is the error of single precision.

    >>> quantize(torch.tensor([-3.0, 7.9, 254.99999, 300.0]))
    tensor([  0,   7, 255, 255], dtype=torch.uint8)
    """
    return values.add_(_ROUNDING).clamp_(0, 255).to(torch.uint8)


def grey_to_rgb(images: Tensor) -> Tensor:
    """Three equal channels from one, N×1×H×W to N×3×H×W."""
    return images.expand(-1, 3, -1, -1)


def rgb_to_grey(images: Tensor) -> Tensor:
    """One channel of luma from three uint8 ones; undoes `grey_to_rgb` exactly.

    >>> rgb_to_grey(torch.full((1, 3, 1, 1), 200, dtype=torch.uint8)).item()
    200
    """
    red, green, blue = (images[:, i : i + 1].to(torch.int32) * _LUMA[i] for i in range(3))
    return ((red + green + blue + 2**15) >> 16).to(torch.uint8)


def luma(images: Tensor) -> Tensor:
    """Brightness of float images N×3×H×W, or N×1×H×W as it is, as N×1×H×W."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]
