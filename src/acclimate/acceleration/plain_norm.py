"""Batch norm with what stands around it, in plain PyTorch: the reference, and what a CPU runs.

The four pieces of :mod:`acclimate.acceleration.fused_norm`, each over pictures of images × channels
× height × width. ``coefficients`` are rows of mean, 1 / standard deviation, scale and offset of
every channel; ``gradients`` rows of the gradients of weight and bias, and of the three factors that
the gradient of the input is made with.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["batch_coefficients", "input_gradient", "normalize", "parameter_gradients"]


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
    x: Tensor, coefficients: Tensor, residual: Tensor | None, *, relu: bool
) -> tuple[Tensor, Tensor | None]:
    """Normalised, with the residual added and rectified; and where the sum was above zero."""
    out = x.float() * _wide(coefficients[2]) + _wide(coefficients[3])
    if residual is not None:
        out = out + residual.float()
    above = out > 0 if relu and residual is not None else None
    return (out.relu() if relu else out).to(x.dtype), above


def parameter_gradients(
    out_gradient: Tensor,
    second: Tensor | None,
    x: Tensor,
    coefficients: Tensor,
    above: Tensor | None,
    *,
    relu: bool,
    batch: bool,
) -> tuple[Tensor, Tensor]:
    """Gradients by channel, and the gradient behind the rectifier.

    The output's gradient may come in two parts, from two readers. Alone and without a residual it
    may come back as it was: whoever uses it rectifies again.
    """
    gradient = out_gradient.float()
    if second is not None:
        gradient = gradient + second.float()
    if relu:
        gradient = gradient * (_positive(x, coefficients) if above is None else above)
    mean, rstd, scale, _ = coefficients
    hat = (x.float() - _wide(mean)) * _wide(rstd)
    weight, bias = (gradient * hat).sum(dim=(0, 2, 3)), gradient.sum(dim=(0, 2, 3))
    count = x.numel() // x.shape[1] if batch else torch.inf
    slope = -scale * rstd * weight / count
    rows = [weight, bias, scale, slope, -scale * bias / count - slope * mean]
    return torch.stack(rows), gradient.to(out_gradient.dtype)


def input_gradient(
    gradient: Tensor, x: Tensor, coefficients: Tensor, gradients: Tensor, *, relu: bool
) -> Tensor:
    """The gradient of the input; ``relu`` where the gradient is not rectified yet."""
    own = gradient.float()
    if relu:
        own = own * _positive(x, coefficients)
    _, _, factor, slope, offset = gradients
    return (own * _wide(factor) + x.float() * _wide(slope) + _wide(offset)).to(x.dtype)


def _positive(x: Tensor, coefficients: Tensor) -> Tensor:
    return x.float() * _wide(coefficients[2]) + _wide(coefficients[3]) > 0


def _wide(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)
