"""Smoothing, convolution and grey values of batches, edges continued as the definitions ask."""

from __future__ import annotations

import functools
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

__all__ = [
    "Pixels",
    "convolve",
    "gaussian",
    "grey_to_rgb",
    "luma",
    "motion_kernels",
    "pad",
    "quantize",
    "rgb_to_grey",
    "to_float",
]

_Indices: TypeAlias = NDArray[np.int64]
Edge: TypeAlias = Literal["repeat", "mirror", "reflect"]
"""What lies beyond abcd: ``repeat`` aa|abcd|dd, ``mirror`` cb|abcd|cb, ``reflect`` ba|abcd|dc."""


def gaussian(images: Tensor, sigma: float, *, edge: Edge, truncate: float = 4.0) -> Tensor:
    """Blur float images N×C×H×W by a Gaussian cut off at ``truncate`` sigma.

    A matrix for each axis does it: any sigma costs the same, however far beyond the image it
    reaches, and the edges need no padding.
    """
    if sigma <= 0:
        return images
    height, width = images.shape[-2:]
    rows = blur_matrix(height, sigma, edge, truncate, images.device)
    columns = blur_matrix(width, sigma, edge, truncate, images.device)
    return rows @ (images @ columns.T)


@functools.lru_cache(maxsize=64)
def blur_matrix(
    side: int, sigma: float, edge: Edge, truncate: float, device: torch.device
) -> Tensor:
    """The ``side`` × ``side`` matrix that blurs a column of pixels."""
    radius = int(truncate * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    weights /= weights.sum()
    matrix = np.zeros((side, side))
    for offset, weight in zip(offsets, weights, strict=True):
        np.add.at(matrix, (np.arange(side), _inside(np.arange(side) + offset, side, edge)), weight)
    return torch.from_numpy(matrix).to(device, torch.float32)


def convolve(images: Tensor, kernels: Tensor, *, edge: Edge) -> Tensor:
    """Correlate float images N×C×H×W with one kernel (h × w) or one for each image (N × h × w).

    Kernels have odd sides and their origin in the middle. By Fourier transform: kernels here are
    large, and its cost does not grow with them.
    """
    height, width = images.shape[-2:]
    reach = [side // 2 for side in kernels.shape[-2:]]
    padded = pad(images, reach[0], reach[1], edge=edge)
    size = [_fast_length(side) for side in padded.shape[-2:]]
    # Flipped, a convolution is a correlation; wrapped-around values fall outside the cut.
    flipped = kernels.flip(-2, -1)
    spectra = torch.fft.rfft2(flipped[:, None] if kernels.ndim == 3 else flipped, s=size)
    top, left = kernels.shape[-2] - 1, kernels.shape[-1] - 1
    # On a CPU one by one: what a transform rounds off there differs with the size of the batch.
    together = len(images) if images.device.type != "cpu" else 1
    parts = []
    for first in range(0, len(images), together):
        part = slice(first, first + together)
        product = torch.fft.rfft2(padded[part], s=size)
        product.mul_(spectra[part] if kernels.ndim == 3 else spectra)
        full = torch.fft.irfft2(product, s=size)
        parts.append(full[..., top : top + height, left : left + width])
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def pad(images: Tensor, vertical: int, horizontal: int, *, edge: Edge) -> Tensor:
    """Images with ``vertical`` rows more above and below, ``horizontal`` columns more at sides.

    Unlike torch's alone, this reaches any number of times over a small image.
    """
    height, width = images.shape[-2:]
    margins = (horizontal, horizontal, vertical, vertical)
    if edge == "repeat":
        return functional.pad(images, margins, mode="replicate")
    if edge == "mirror" and vertical < height and horizontal < width:
        return functional.pad(images, margins, mode="reflect")
    rows = _padded_indices(height, vertical, edge, images.device)
    columns = _padded_indices(width, horizontal, edge, images.device)
    return images.index_select(-2, rows).index_select(-1, columns)


@functools.lru_cache(maxsize=64)
def _padded_indices(side: int, reach: int, edge: Edge, device: torch.device) -> Tensor:
    return torch.from_numpy(_inside(np.arange(-reach, side + reach), side, edge)).to(device)


def _inside(indices: _Indices, side: int, edge: Edge) -> _Indices:
    """Where in the image the pixels at these indices are read from."""
    if edge == "repeat" or side == 1:
        return np.clip(indices, 0, side - 1)
    ends = 1 if edge == "reflect" else 0  # whether the last pixel comes twice
    period = 2 * (side - 1 + ends)
    forth = indices % period
    return np.minimum(forth, period - ends - forth)


@functools.lru_cache(maxsize=256)
def _fast_length(least: int) -> int:
    """The next length without prime factors above 5, which transforms are fast for."""
    length = least
    while True:
        rest = length
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return length
        length += 1


def motion_kernels(angles_degrees: Tensor, *, radius: float, sigma: float) -> Tensor:
    """One kernel (odd × odd, summing to 1, origin in the middle) for each of N angles.

    As ImageMagick has it, a pixel becomes the mean of 2·radius + 1 pixels ahead of it: every next
    one a pixel farther along the angle (0 is to the right, 90 down), rounded to the grid, with
    the weights of one half of a Gaussian. To be correlated with the image, edge pixels repeated.
    """
    reach = 2 * -int(-radius // 1)
    side = 2 * reach + 1
    steps = torch.arange(reach + 1, dtype=torch.float64, device=angles_degrees.device)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights /= weights.sum()
    # In double precision: a rounding that went the other way would move a tap by a whole pixel.
    angles = angles_degrees.to(torch.float64).deg2rad()[:, None]
    down, right = (
        torch.ceil(steps * part - 0.5).to(torch.int64) for part in (angles.sin(), angles.cos())
    )
    places = (reach + down).mul_(side).add_(reach + right)
    kernels = weights.new_zeros(len(places), side * side, dtype=torch.float32)
    # Two steps may round to the same pixel, where their weights add up.
    kernels.scatter_add_(1, places, weights.to(torch.float32).expand_as(places))
    return kernels.view(-1, side, side)


Pixels: TypeAlias = NDArray[np.uint8]

# ITU-R 601 luma in units of 2**-16, as Pillow has it; their sum is 1, so greys stay the same.
_LUMA = (19595, 38470, 7471)
_ROUNDING = 2.0**-10


def to_float(images: Tensor) -> Tensor:
    """A float32 copy of uint8 images in the memory order N×C×H×W, which kernels run fastest on."""
    return images.to(torch.float32, memory_format=torch.contiguous_format)


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
    """One channel of luma from three uint8 ones; undoes `grey_to_rgb` exactly."""
    red, green, blue = (images[:, i : i + 1].to(torch.int32) * _LUMA[i] for i in range(3))
    return ((red + green + blue + 2**15) >> 16).to(torch.uint8)


def luma(images: Tensor) -> Tensor:
    """Brightness of float images N×3×H×W, or N×1×H×W unchanged, as N×1×H×W."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]
