"""Noise of the sensor: Gaussian, shot, impulse, speckle.

Every channel of every pixel has a draw of its own, in the order of arrays of pixels (height, width,
channels), whose memory then is gone through once. The constants are meant for values from 0 to 1;
here they are scaled instead of the image, which spares a pass and the rounding of a division.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from scipy import special
from torch import Tensor

from acclimate.data.corruptions.corrupt import corruption
from acclimate.data.corruptions.draws import LEVELS, Draws

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


@corruption(random=True)
def gaussian_noise(images: Tensor, draws: Draws, *, std: float) -> Tensor:
    """Add normal noise, as in low light."""
    return _by_pixel(draws.normal, images).mul_(255 * std).add_(images)


@corruption(random=True)
def shot_noise(images: Tensor, draws: Draws, *, photons: float) -> Tensor:
    """Count the photons: Poisson noise, at ``photons`` for a full-scale value."""
    pixels = images.permute(0, 2, 3, 1)
    index = draws.levels(*pixels.shape[1:]).add_(pixels.to(torch.int32).mul_(LEVELS))
    counted = _shot_table(photons, images.device).index_select(0, index.view(-1))
    return counted.view(pixels.shape).permute(0, 3, 1, 2)


@corruption(random=True)
def impulse_noise(images: Tensor, draws: Draws, *, amount: float) -> Tensor:
    """Set a share ``amount`` of the values to black or white: salt and pepper in colour."""
    # One draw decides both whether a value is hit and, by the half it lies in, with what.
    draw = _by_pixel(draws.levels, images)
    hit = round(amount * LEVELS)
    # As bits, since that is several times faster than filling through masks.
    white = (draw < hit).to(torch.uint8).mul_(255)
    not_black = (draw >= hit // 2).to(torch.uint8).mul_(255)
    return white.bitwise_or_(images).bitwise_and_(not_black)


@corruption(random=True)
def speckle_noise(images: Tensor, draws: Draws, *, std: float) -> Tensor:
    """Add normal noise in proportion to the value itself."""
    return _by_pixel(draws.normal, images).mul_(std).add_(1).mul_(images)


def _by_pixel(draw: Callable[..., Tensor], images: Tensor) -> Tensor:
    channels, height, width = images.shape[1:]
    return draw(height, width, channels).permute(0, 3, 1, 2)


@functools.lru_cache(maxsize=4)
def _shot_table(photons: float, device: torch.device) -> Tensor:
    """What becomes of each of the 256 values (slow index) under each of the draws (fast index).

    A count is the quantile of its draw. 16 MB, made in a fraction of a second.
    """
    most = int(photons + 12 * np.sqrt(photons) + 12)
    middles = (np.arange(LEVELS) + 0.5) / LEVELS
    shades = (np.clip(np.arange(most + 1) / photons, 0, 1) * 255 + 1e-6).astype(np.uint8)
    table = np.empty((256, LEVELS), np.uint8)
    for value in range(256):
        below = special.pdtr(np.arange(most + 1), value / 255 * photons)
        table[value] = shades[np.minimum(np.searchsorted(below, middles), most)]
    return torch.from_numpy(table.reshape(-1)).to(device)
