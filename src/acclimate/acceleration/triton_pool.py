"""The pieces of :mod:`acclimate.acceleration.plain_pool` as Triton kernels, channels last."""

# mypy: ignore-errors
# Triton compiles the text of these functions; their annotations are its own.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from acclimate.acceleration.triton_norm import finish_gradients, shares, tile

__all__ = ["normalize_and_pool", "pooled_gradients"]

_SUMS = {"values": 1024, "widest": 128, "deep": 1, "most": 1056}


@triton.jit
def _place(r, number, height, width, out_height, out_width, window, stride, padding):
    """Where a window's pixel of this number lies in the input, and whether it lies inside."""
    y = (r // out_width % out_height) * stride - padding + number // window
    x = (r % out_width) * stride - padding + number % window
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    image = (r // (out_width * out_height)).to(tl.int64)
    return (image * height + y) * width + x, inside


@triton.jit
def _normalize_and_pool(
    x, coefficients, out, chosen, rows, channels, across, height, width, out_height, out_width,
    window: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    high: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    c = tl.program_id(0) % across * wide + tl.arange(0, wide)
    inside = c < channels
    scale = tl.load(coefficients + 2 * channels + c, mask=inside, other=0.0)
    offset = tl.load(coefficients + 3 * channels + c, mask=inside, other=0.0)
    r = tl.program_id(0) // across * high + tl.arange(0, high)
    best = tl.zeros((high, wide), tl.float32)
    which = tl.full((high, wide), 255, tl.int32)  # none was above zero
    for number in tl.static_range(window * window):
        place, valid = _place(
            r, number, height, width, out_height, out_width, window, stride, padding
        )
        there = (valid & (r < rows))[:, None] & inside[None, :]
        value = tl.load(x + place[:, None] * channels + c[None, :], mask=there, other=0.0)
        value = value.to(tl.float32) * scale[None, :] + offset[None, :]
        better = there & ((value > best) | (value != value))  # NaN stays NaN
        best = tl.where(better, value, best)
        which = tl.where(better, number, which)
    there = (r < rows)[:, None] & inside[None, :]
    at = r.to(tl.int64)[:, None] * channels + c[None, :]
    tl.store(out + at, best.to(out.dtype.element_ty), mask=there)
    tl.store(chosen + at, which.to(tl.uint8), mask=there)


@triton.jit
def _pooled_sums(
    gradient, second, x, coefficients, chosen, partial, rows, channels, programs, across,
    height, width, out_height, out_width,
    window: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, two: tl.constexpr,
    high: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0) // across
    c = tl.program_id(0) % across * wide + tl.arange(0, wide)
    inside = c < channels
    mean = tl.load(coefficients + c, mask=inside, other=0.0)[None, :]
    rstd = tl.load(coefficients + channels + c, mask=inside, other=0.0)
    hats = tl.zeros((high, wide), tl.float32)
    total = tl.zeros((high, wide), tl.float32)
    for start in range(program * high, rows, programs * high):
        r = start + tl.arange(0, high)
        there = (r < rows)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        which = tl.load(chosen + at, mask=there, other=255).to(tl.int32)
        grad = tl.load(gradient + at, mask=there, other=0.0).to(tl.float32)
        if two:
            grad += tl.load(second + at, mask=there, other=0.0).to(tl.float32)
        counts = there & (which < 255)
        place, _ = _place(
            r[:, None], which, height, width, out_height, out_width, window, stride, padding
        )
        value = tl.load(x + place * channels + c[None, :], mask=counts, other=0.0).to(tl.float32)
        grad = tl.where(counts, grad, 0.0)
        total += grad
        hats += grad * (value - mean)
    row = partial + program.to(tl.int64) * 2 * channels
    tl.store(row + c, tl.sum(hats, 0) * rstd, mask=inside)
    tl.store(row + channels + c, tl.sum(total, 0), mask=inside)


def normalize_and_pool(
    x: Tensor, coefficients: Tensor, *, window: int, stride: int, padding: int
) -> tuple[Tensor, Tensor]:
    """See :func:`acclimate.acceleration.plain_pool.normalize_and_pool`."""
    images, channels, height, width = x.shape
    sides = [(side + 2 * padding - window) // stride + 1 for side in (height, width)]
    out = torch.empty(
        (images, channels, *sides),
        dtype=x.dtype,
        device=x.device,
        memory_format=torch.channels_last,
    )
    chosen = torch.empty_like(out, dtype=torch.uint8)
    rows = out.numel() // channels
    high, wide = tile(channels, values=1024)
    across = triton.cdiv(channels, wide)
    _normalize_and_pool[(triton.cdiv(rows, high) * across,)](
        x, coefficients, out, chosen, rows, channels, across, height, width, *sides,
        window, stride, padding, high, wide,
    )  # fmt: skip
    return out, chosen


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
    """See :func:`acclimate.acceleration.plain_pool.pooled_gradients`."""
    channels = x.shape[1]
    rows = out_gradient.numel() // channels
    programs, across, high, wide = shares(rows, channels, **_SUMS)
    partial = x.new_empty((programs, 2, channels), dtype=torch.float32)
    two = second is not None
    _pooled_sums[(programs * across,)](
        out_gradient, second if two else out_gradient, x, coefficients, chosen, partial,
        rows, channels, programs, across, *x.shape[2:], *out_gradient.shape[2:],
        window, stride, padding, two, high, wide,
    )  # fmt: skip
    return finish_gradients(partial, coefficients, share=0.0)
