"""Changes of tone and colour: brightness, contrast, saturation.

The published definitions go through hue, saturation and value and back. Hue never changes, so the
round trip has a closed form: each channel lies a share of the way from the largest channel (the
value) down to the smallest, and only the two ends move.
"""

from __future__ import annotations

import numpy as np

from acclimate.data.corruptions._pixels import Pixels, quantize
from acclimate.data.corruptions._registry import corruption

__all__ = ["brightness", "contrast", "saturate"]


@corruption()
def brightness(image: Pixels, *, add_to_value: float) -> Pixels:
    """Raise the value (of hue, saturation, value) by a constant, at most to 1."""
    unit = image / 255
    value = unit.max(axis=-1, keepdims=True)
    raised = np.minimum(value + add_to_value, 1)
    # The saturation stays, so the distance to the value grows with it. Black has none to grow.
    gain = raised / np.maximum(value, 1 / 255)
    return quantize((raised - (value - unit) * gain) * 255)


@corruption()
def contrast(image: Pixels, *, factor: float) -> Pixels:
    """Draw every channel towards its mean over the picture."""
    # With the mean known, a value's fate depends on the value alone: 256 cases a channel.
    mean = (image / 255).mean(axis=(0, 1))
    levels = np.arange(256)[:, None] / 255
    table = quantize(((levels - mean) * factor + mean) * 255)
    return np.take_along_axis(table, image.reshape(-1, image.shape[-1]), axis=0).reshape(
        image.shape
    )


@corruption(colour=True)
def saturate(image: Pixels, *, multiply: float, add: float) -> Pixels:
    """Scale and shift the saturation.

    A grey pixel has no hue and counts as red, as published: it turns reddish where ``add`` > 0.
    """
    unit = image / 255
    value = unit.max(axis=-1, keepdims=True)
    chroma = value - unit.min(axis=-1, keepdims=True)
    grey = chroma == 0
    share = np.where(grey, (0.0, 1.0, 1.0), (value - unit) / np.where(grey, 1, chroma))
    saturation = chroma / np.maximum(value, 1 / 255)
    saturation = np.clip(saturation * multiply + add, 0, 1)
    return quantize((value - value * saturation * share) * 255)
