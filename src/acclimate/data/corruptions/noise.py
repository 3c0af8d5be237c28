"""Noise of the sensor: Gaussian, shot, impulse, speckle.

Every channel of every pixel has a draw of its own. The constants are meant for values from 0 to 1;
here they are scaled instead of the picture, which spares a pass and the rounding of a division.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from acclimate.data.corruptions._pixels import Pixels, quantize
from acclimate.data.corruptions._registry import corruption

__all__ = ["gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"]


@corruption(random=True)
def gaussian_noise(image: Pixels, rng: Generator, *, std: float) -> Pixels:
    """Add normal noise, as in low light."""
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    noise *= np.float32(255 * std)
    noise += image
    return quantize(noise)


@corruption(random=True)
def shot_noise(image: Pixels, rng: Generator, *, photons: float) -> Pixels:
    """Count the photons: Poisson noise, at ``photons`` for a full-scale value."""
    counts = rng.poisson(image / 255 * photons)
    return quantize(counts / photons * 255)


@corruption(random=True)
def impulse_noise(image: Pixels, rng: Generator, *, amount: float) -> Pixels:
    """Set a share ``amount`` of the values to black or white: salt and pepper in colour."""
    # One draw decides both whether a value is hit and, by the half it lies in, with what.
    draw = rng.random(image.shape, dtype=np.float32)
    out = image.copy()
    out[draw < amount] = 255
    out[draw < amount / 2] = 0
    return out


@corruption(random=True)
def speckle_noise(image: Pixels, rng: Generator, *, std: float) -> Pixels:
    """Add normal noise in proportion to the value itself."""
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    noise *= np.float32(std)
    noise += 1
    noise *= image
    return quantize(noise)
