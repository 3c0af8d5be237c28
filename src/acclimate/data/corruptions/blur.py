"""Blurs of the lens."""

from __future__ import annotations

from scipy import ndimage

from acclimate.data.corruptions._pixels import Pixels, quantize
from acclimate.data.corruptions._registry import corruption

__all__ = ["gaussian_blur"]


@corruption()
def gaussian_blur(image: Pixels, *, sigma: float) -> Pixels:
    """Blur by a Gaussian cut off at four sigma, with the edge pixels repeated outwards."""
    # Double precision: sums a hair below an integer would lose a grey level to truncation.
    blurred = ndimage.gaussian_filter(
        image / 255, sigma=(sigma, sigma, 0), mode="nearest", truncate=4.0
    )
    return quantize(blurred * 255)
