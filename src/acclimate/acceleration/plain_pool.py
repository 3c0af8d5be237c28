"""Batch norm, rectifier and max pooling in plain PyTorch: the reference, and what a CPU runs.

The stem of most networks for photographs, where pictures are largest and nothing before it learns:
then the backward pass needs no gradient of the input, and looks only at what the pool let through.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.acceleration.plain_norm import normalize

__all__ = ["normalize_and_pool", "pooled_gradients"]


def normalize_and_pool(
    x: Tensor, coefficients: Tensor, *, window: int, stride: int, padding: int
) -> tuple[Tensor, Tensor]:
    """Normalised, rectified and pooled; and which pixel each comes from, -1 where none is above 0.

    >>> x = torch.tensor([[[[1.0, 2.0], [3.0, -4.0]]]])
    >>> as_it_is = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    >>> normalize_and_pool(x, as_it_is, window=2, stride=2, padding=0)
    (tensor([[[[3.]]]]), tensor([[[[2]]]]))
    """
    above, _ = normalize(x, coefficients, None, activation="relu")
    out, chosen = F.max_pool2d(above, window, stride, padding, return_indices=True)
    return out, torch.where(out > 0, chosen, -1)


def pooled_gradients(
    out_gradient: Tensor,
    second: Tensor | None,
    x: Tensor,
    coefficients: Tensor,
    chosen: Tensor,
    *,
    window: int,
    stride: int,
    padding: int,
) -> Tensor:
    """Gradients of weight and bias (the first two rows), from one reader of the output or two."""
    gradient = out_gradient.float()
    if second is not None:
        gradient = gradient + second.float()
    gradient = (gradient * (chosen >= 0)).flatten(2)
    value = x.float().flatten(2).gather(2, chosen.clamp_min(0).flatten(2))
    mean, rstd = (row.view(1, -1, 1) for row in coefficients[:2])
    weight = (gradient * (value - mean) * rstd).sum(dim=(0, 2))
    return torch.stack([weight, gradient.sum(dim=(0, 2))])
