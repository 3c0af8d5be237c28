"""The first convolution of most networks for photographs, on pictures folded two by two.

A window of 7 × 7 over three channels, two pixels apart, suits no matrix unit: three channels fill
none. The same sums come out of a window of 4 × 4 over blocks of 2 × 2 pixels, whose twelve values
count as channels (and four that stay zero).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.acceleration.frozen_conv import FrozenConv

__all__ = ["StemConv"]

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
