"""Changes of tone and colour: brightness, contrast, saturation.

The published definitions go through hue, saturation and value and back. Hue never changes, so the
round trip has a closed form: each channel lies a share of the way from the largest channel (the
value) down to the smallest, and only the two ends move.
"""

from __future__ import annotations

import torch
from torch import Tensor

from acclimate.data.corruptions._registry import corruption

__all__ = ["brightness", "contrast", "saturate"]


@corruption()
def brightness(images: Tensor, *, add_to_value: float) -> Tensor:
    """Raise the value (of hue, saturation, value) by a constant, at most to full scale."""
    levels = images.to(torch.float32, memory_format=torch.contiguous_format)
    value = levels.amax(dim=1, keepdim=True)
    raised = (value + 255 * add_to_value).clamp_(max=255)
    # The saturation stays, so the distance to the value grows with it. Black has none to grow.
    gain = raised / value.clamp(min=1)
    return levels.sub_(value).mul_(gain).add_(raised)


@corruption()
def contrast(images: Tensor, *, factor: float) -> Tensor:
    """Draw every channel towards its mean over the picture."""
    levels = images.to(torch.float32, memory_format=torch.contiguous_format)
    # Summed as whole numbers, the mean is the same on any device.
    total = images.sum(dim=(2, 3), keepdim=True, dtype=torch.int64)
    mean = total.to(torch.float64) / (images.shape[2] * images.shape[3])
    return levels.mul_(factor).add_((mean * (1 - factor)).to(torch.float32))


@corruption(colour=True)
def saturate(images: Tensor, *, multiply: float, add: float) -> Tensor:
    """Scale and shift the saturation.

    A grey pixel has no hue and counts as red, as published: it turns reddish where ``add`` > 0.
    """
    levels = images.to(torch.float32, memory_format=torch.contiguous_format)
    value = levels.amax(dim=1, keepdim=True)
    chroma = value - levels.amin(dim=1, keepdim=True)
    saturation = (chroma / value.clamp(min=1)).mul_(multiply).add_(add).clamp_(0, 1)
    share = levels.sub_(value).div_(chroma.clamp(min=1))  # 0 to -1, from the value downwards
    if add > 0:
        share[:, 1:].masked_fill_(chroma == 0, -1)
    return share.mul_(saturation.mul_(value)).add_(value)
