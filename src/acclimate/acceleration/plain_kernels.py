"""Batch norm with what stands around it, in plain PyTorch: the reference, and what a CPU runs.

The four pieces of :mod:`acclimate.acceleration.norm`, each over tensors of images × channels
× height × width. ``coefficients`` are rows of mean, 1 / standard deviation, scale and offset of
every channel; ``gradients`` rows of the gradients of weight and bias, and of the three factors that
the gradient of the input is made with.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "Activation",
    "batch_coefficients",
    "coefficients",
    "input_gradient",
    "normalize",
    "normalize_and_pool",
    "parameter_gradients",
    "pooled_gradients",
]

Activation = Literal["none", "relu", "relu6", "silu"]


def batch_coefficients(
    x: Tensor, weight: Tensor, bias: Tensor, origin: Tensor, *, eps: float
) -> Tensor:
    """How a batch is normalised with its own statistics (``origin``: a guess of the means)."""
    own = x.float()
    mean = own.mean(dim=(0, 2, 3))
    var = (own - _wide(mean)).square().mean(dim=(0, 2, 3))
    return coefficients(mean, var, weight, bias, eps=eps)


def coefficients(mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, *, eps: float) -> Tensor:
    """Mean, 1 / standard deviation, scale and offset, one row each."""
    rstd = (var.float() + eps).rsqrt()
    scale = weight.float() * rstd
    return torch.stack([mean.float(), rstd, scale, bias.float() - mean.float() * scale])


def normalize(
    x: Tensor, coefficients: Tensor, residual: Tensor | None, *, activation: Activation
) -> tuple[Tensor, Tensor | None]:
    """Normalised, with the residual added, and activated.

    Behind a residual, which only a rectifier may follow: also where the sum was above zero.
    """
    out = _affine(x, coefficients)
    if residual is not None:
        out = out + residual.float()
    above = out > 0 if residual is not None and activation == "relu" else None
    if activation == "relu":
        out = out.relu()
    elif activation == "relu6":
        out = F.relu6(out)
    elif activation == "silu":
        out = F.silu(out)
    return out.to(x.dtype), above


def parameter_gradients(
    out_gradient: Tensor,
    second: Tensor | None,
    x: Tensor,
    coefficients: Tensor,
    above: Tensor | None,
    *,
    activation: Activation,
    batch: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients by channel, and the gradient behind the activation.

    The output's gradient may come in two parts, from two readers. Alone and without a residual it
    comes back as it was: whoever uses it takes it through the activation.
    """
    gradient = out_gradient.float()
    if second is not None:
        gradient = gradient + second.float()
    gradient = gradient * (_slope(x, coefficients, activation) if above is None else above)
    mean, rstd, scale, _ = coefficients
    hat = (x.float() - _wide(mean)) * _wide(rstd)
    weight, bias = (gradient * hat).sum(dim=(0, 2, 3)), gradient.sum(dim=(0, 2, 3))
    count = x.numel() // x.shape[1] if batch else torch.inf
    slope = -scale * rstd * weight / count
    rows = [weight, bias, scale, slope, -scale * bias / count - slope * mean]
    as_it_was = second is None and above is None
    return torch.stack(rows), out_gradient if as_it_was else gradient.to(out_gradient.dtype)


def input_gradient(
    gradient: Tensor,
    x: Tensor,
    coefficients: Tensor,
    gradients: Tensor,
    *,
    activation: Activation,
) -> Tensor:
    """The gradient of the input; ``activation`` where it has not been taken through it yet."""
    own = gradient.float() * _slope(x, coefficients, activation)
    _, _, factor, slope, offset = gradients
    return (own * _wide(factor) + x.float() * _wide(slope) + _wide(offset)).to(x.dtype)


def _affine(x: Tensor, coefficients: Tensor) -> Tensor:
    return x.float() * _wide(coefficients[2]) + _wide(coefficients[3])


def _slope(x: Tensor, coefficients: Tensor, activation: Activation) -> Tensor | float:
    """The derivative of the activation, where the input leads."""
    if activation == "none":
        return 1.0
    value = _affine(x, coefficients)
    if activation == "relu":
        return value > 0
    if activation == "relu6":
        return (value > 0) & (value < 6)
    share = value.sigmoid()
    return share * (1 + value * (1 - share))


def _wide(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)


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
