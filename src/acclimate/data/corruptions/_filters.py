"""Smoothing and convolution of batches, with the edges continued as the definitions ask."""

from __future__ import annotations

import functools
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

__all__ = ["Edge", "blur_matrix", "convolve", "gaussian", "pad"]

_Indices: TypeAlias = NDArray[np.int64]
Edge: TypeAlias = Literal["repeat", "mirror", "reflect"]
"""What lies beyond abcd: ``repeat`` aa|abcd|dd, ``mirror`` cb|abcd|cb, ``reflect`` ba|abcd|dc."""


def gaussian(images: Tensor, sigma: float, *, edge: Edge, truncate: float = 4.0) -> Tensor:
    """Blur float images N×C×H×W by a Gaussian cut off at ``truncate`` sigma.

    A matrix for each axis does it: any sigma costs the same, however far beyond the picture it
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
    """The ``side`` × ``side`` matrix that blurs a column of pixels.

    >>> blur_matrix(4, 0.5, "repeat", 4.0, torch.device("cpu")).sum(dim=1)
    tensor([1., 1., 1., 1.])
    """
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

    Unlike torch's alone, this reaches any number of times over a small picture.
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
    """Where in the picture the pixels at these indices are taken from."""
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
