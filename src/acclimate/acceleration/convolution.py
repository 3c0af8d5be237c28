"""A convolution whose weights do not learn: half precision once and for all, no inputs kept."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["FrozenConv", "StemConv"]


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


_CHANNELS = 16


class StemConv(nn.Module):
    """A frozen convolution of 7 × 7 with stride 2 and padding 3 in the place of the original.

    >>> layer = nn.Conv2d(3, 8, 7, stride=2, padding=3).requires_grad_(False)
    >>> x = torch.rand(2, 3, 8, 12)
    >>> torch.allclose(StemConv(layer, dtype=torch.float32)(x), layer(x), atol=1e-5)
    True
    """

    weight: Tensor
    bias: Tensor | None
    plain: Tensor

    def __init__(self, layer: nn.Conv2d, *, dtype: torch.dtype) -> None:
        super().__init__()
        plain = layer.weight.detach().to(dtype)
        out, channels = plain.shape[:2]
        # One row and one column of zeros in front: now windows begin at even pixels.
        blocks = F.pad(plain, (1, 0, 1, 0)).view(out, channels, 4, 2, 4, 2)
        folded = plain.new_zeros((out, _CHANNELS, 4, 4))
        folded[:, : 4 * channels] = blocks.permute(0, 1, 3, 5, 2, 4).reshape(out, -1, 4, 4)
        bias = None if layer.bias is None else layer.bias.detach().to(dtype)
        last = torch.channels_last
        self.register_buffer("weight", folded.contiguous(memory_format=last), persistent=False)
        self.register_buffer("plain", plain.contiguous(memory_format=last), persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    @staticmethod
    def takes(module: nn.Module) -> bool:
        """Whether a module is such a convolution."""
        return (
            FrozenConv.takes(module)
            and isinstance(module, nn.Conv2d)
            and 4 * module.in_channels <= _CHANNELS
            and module.kernel_size == (7, 7)
            and module.stride == (2, 2)
            and module.padding == (3, 3)
            and module.dilation == (1, 1)
            and module.groups == 1
        )

    def forward(self, x: Tensor) -> Tensor:
        """Convolve."""
        images, channels, height, width = x.shape
        if x.requires_grad or height % 2 or width % 2:
            return F.conv2d(x.to(self.plain.dtype), self.plain, self.bias, 2, 3)
        sides = height // 2 + 3, width // 2 + 3
        folded = torch.empty(
            (images, _CHANNELS, *sides),
            dtype=self.weight.dtype,
            device=x.device,
            memory_format=torch.channels_last,
        ).zero_()
        blocks = x.view(images, channels, height // 2, 2, width // 2, 2).permute(0, 1, 3, 5, 2, 4)
        inner = folded[:, : 4 * channels, 2:-1, 2:-1]
        inner.view(images, channels, 2, 2, *inner.shape[2:]).copy_(blocks)
        return F.conv2d(folded, self.weight, self.bias)
