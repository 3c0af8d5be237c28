"""A convolution whose weights do not learn: half precision once and for all, no inputs kept."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["FrozenConv"]


class _FrozenConv(torch.autograd.Function):
    """What torch keeps for the gradient of the weights is most of the memory of a step."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: nn.Conv2d) -> Any:
        ctx.save_for_backward(weight)
        ctx.layer, ctx.sides = layer, x.shape[2:]
        return F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (weight,) = ctx.saved_tensors
        layer: nn.Conv2d = ctx.layer
        assert not isinstance(layer.padding, str)
        # What a strided convolution leaves over at the edge.
        rest = [
            side - (out - 1) * stride + 2 * padding - dilation * (window - 1) - 1
            for side, out, stride, padding, dilation, window in zip(
                ctx.sides, grads[0].shape[2:], layer.stride, layer.padding, layer.dilation,
                layer.kernel_size, strict=True,
            )
        ]  # fmt: skip
        # The transposed convolution rather than torch's backward pass, which asks for the input and
        # copies whatever stands in for it.
        gradient = F.conv_transpose2d(
            grads[0], weight, None, layer.stride, layer.padding, rest, layer.groups, layer.dilation
        )
        return gradient, None, None, None


def _laid_out(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weights in ``dtype``, channels last; the same tensor where they are so already.

    A kernel of one pixel is "contiguous" either way, but cuDNN goes by the strides.
    """
    _, channels, _, width = weight.shape
    strides = weight[0].numel(), 1, width * channels, channels
    if weight.dtype == dtype and weight.stride() == strides:
        return weight
    return torch.empty_strided(weight.shape, strides, dtype=dtype, device=weight.device).copy_(
        weight
    )


class FrozenConv(nn.Module):
    """A convolution in the place of the original, with its weights in ``dtype``, channels last.

    >>> layer = nn.Conv2d(3, 4, 3, padding=1).requires_grad_(False)
    >>> FrozenConv(layer, dtype=torch.bfloat16)(torch.rand(2, 3, 8, 8)).dtype
    torch.bfloat16
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, layer: nn.Conv2d, *, dtype: torch.dtype) -> None:
        super().__init__()
        bias = None if layer.bias is None else layer.bias.detach().to(dtype)
        self.register_buffer("weight", _laid_out(layer.weight.detach(), dtype), persistent=False)
        self.register_buffer("bias", bias, persistent=False)
        self._layer = (layer,)

    @staticmethod
    def takes(module: nn.Module) -> bool:
        """Whether a module is a convolution that can be replaced."""
        return (
            type(module) is nn.Conv2d
            and not any(p.requires_grad for p in module.parameters())
            and module.padding_mode == "zeros"
            and not isinstance(module.padding, str)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        x = x.to(self.weight.dtype, memory_format=torch.channels_last)
        out: Tensor = _FrozenConv.apply(x, self.weight, self.bias, self._layer[0])  # type: ignore[no-untyped-call]
        return out
