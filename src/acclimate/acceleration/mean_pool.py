"""Average pooling of whole windows as a mean: torch's own is slow on a GPU, channels last."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["mean_pool"]


def mean_pool(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """What ``avg_pool2d`` gives; windows that tile pictures with channels last are averaged here.

    Its parameters have the names of that function's, whose calls are sent here.

    >>> x = torch.rand(2, 4, 6, 8).contiguous(memory_format=torch.channels_last)
    >>> torch.allclose(mean_pool(x, 2), F.avg_pool2d(x, 2))
    True
    """
    side = kernel_size if isinstance(kernel_size, int) else 0
    tiles = side and stride in (None, side) and padding == 0 and divisor_override is None
    if not (tiles and _whole(input, side)):
        rest = (stride, padding, ceil_mode, count_include_pad, divisor_override)
        plain: Tensor = F.avg_pool2d(input, kernel_size, *rest)
        return plain
    rows, columns = (length // side for length in input.shape[2:])
    windows = input.permute(0, 2, 3, 1).unflatten(2, (columns, side)).unflatten(1, (rows, side))
    pooled: Tensor = windows.mean((2, 4))
    return pooled.permute(0, 3, 1, 2)


def _whole(x: Tensor, side: int) -> bool:
    """Whether windows fill pictures that have their channels last."""
    last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return last and not any(length % side for length in x.shape[2:])
