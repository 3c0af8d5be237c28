"""The pieces of :mod:`acclimate.acceleration.plain_kernels` as Triton kernels, channels last.

Batch norm costs what its passes over memory cost. Forward, the input is read once for the
statistics and once to be normalised, with residual and rectifier as well; backward, gradient and
input are read once for the sums and once for the gradient of the input. Which values the rectifier
let through is read off the input again, or, behind a residual, kept as one bit each.

Sums are taken by so many programs and then in a fixed order, so that the same numbers come out
every time; they are taken around ``origin``, the source's mean, or a large mean would eat the
digits of a small variance. Programs go through memory side by side and backwards: what was written
last is in the cache still, and what they read last will be when the next kernel goes forwards. Each
reads some tiles ahead of those it adds up, or most of the time would be spent waiting for one.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from acclimate.acceleration.plain_kernels import Activation

__all__ = [
    "batch_coefficients",
    "finish_gradients",
    "input_gradient",
    "normalize",
    "normalize_and_pool",
    "parameter_gradients",
    "pooled_gradients",
    "shares",
    "tile",
]

# mypy: ignore-errors
# Triton compiles the text of these functions; their annotations are its own.


_MOMENTS = {"values": 1024, "widest": 64, "deep": 4, "most": 792}
_SUMS = {"values": 1024, "widest": 64, "deep": 2, "most": 528}
"""Tiles, how many a program reads ahead, and how many programs there are at most: as many as run at
one time on an H200 (132 processors) with the registers that this takes."""


def tile(channels: int, *, values: int, widest: int = 128) -> tuple[int, int]:
    """Rows and channels of a tile."""
    wide = min(widest, triton.next_power_of_2(channels))
    return values // wide, wide


def shares(
    rows: int, channels: int, *, values: int, widest: int, deep: int, most: int
) -> tuple[int, int, int, int]:
    """How many programs share the rows, into how many strips the channels fall, and the tile."""
    high, wide = tile(channels, values=values, widest=widest)
    across = triton.cdiv(channels, wide)
    programs = max(1, min(triton.cdiv(rows, high * deep), most // across))
    return programs, across, high, wide


@triton.jit
def _tile(x, start, rows, row_length, columns, inside, first: tl.constexpr, high: tl.constexpr):
    """Some rows of the block that starts at ``start``; zeros outside of what there is."""
    r = first + tl.arange(0, high)
    there = ((start >= 0) & (r < rows - start))[:, None] & inside[None, :]
    at = start.to(tl.int64) * row_length + r[:, None] * row_length + columns[None, :]
    return tl.load(x + at, mask=there, other=0)


@triton.jit
def _tiles(
    x, start, rows, row_length, columns, inside, deep: tl.constexpr, high: tl.constexpr
):  # fmt: skip
    tiles = ()
    for number in tl.static_range(deep):
        tiles += (_tile(x, start, rows, row_length, columns, inside, number * high, high),)
    return tiles


@triton.jit
def _moments(
    x, origin, partial, rows, channels, programs, across,
    deep: tl.constexpr, high: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0) // across
    c = tl.program_id(0) % across * wide + tl.arange(0, wide)
    inside = c < channels
    middle = tl.load(origin + c, mask=inside, other=0.0)[None, :]
    total = tl.zeros((high, wide), tl.float32)
    squares = tl.zeros((high, wide), tl.float32)
    blocks = tl.cdiv(rows, high * deep)
    start = (blocks - 1 - program) * high * deep
    tiles = _tiles(x, start, rows, channels, c, inside, deep, high)
    for _ in range(program, blocks, programs):
        here, now = start, tiles
        start -= programs * high * deep
        tiles = _tiles(x, start, rows, channels, c, inside, deep, high)
        for number in tl.static_range(deep):
            r = here + number * high + tl.arange(0, high)
            there = (r < rows)[:, None] & inside[None, :]
            value = tl.where(there, now[number].to(tl.float32) - middle, 0.0)
            total += value
            squares += value * value
    row = partial + program.to(tl.int64) * 2 * channels
    tl.store(row + c, tl.sum(total, 0), mask=inside)
    tl.store(row + channels + c, tl.sum(squares, 0), mask=inside)


@triton.jit
def _sum_up(partial, programs, channels, c, inside, high: tl.constexpr, wide: tl.constexpr):
    one = tl.zeros((high, wide), tl.float32)
    two = tl.zeros((high, wide), tl.float32)
    for start in range(0, programs, high):
        p = start + tl.arange(0, high)
        there = (p < programs)[:, None] & inside[None, :]
        at = p[:, None] * 2 * channels + c[None, :]
        one += tl.load(partial + at, mask=there, other=0.0)
        two += tl.load(partial + at + channels, mask=there, other=0.0)
    return tl.sum(one, 0), tl.sum(two, 0)


@triton.jit
def _finish_moments(
    partial, origin, weight, bias, out, programs, rows, channels, eps,
    high: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    c = tl.program_id(0) * wide + tl.arange(0, wide)
    inside = c < channels
    total, squares = _sum_up(partial, programs, channels, c, inside, high, wide)
    away = total / rows
    var = tl.maximum(squares / rows - away * away, 0.0)
    rstd = 1.0 / tl.sqrt(var + eps)
    mean = tl.load(origin + c, mask=inside, other=0.0) + away
    scale = tl.load(weight + c, mask=inside, other=0.0) * rstd
    offset = tl.load(bias + c, mask=inside, other=0.0) - mean * scale
    tl.store(out + c, mean, mask=inside)
    tl.store(out + channels + c, rstd, mask=inside)
    tl.store(out + 2 * channels + c, scale, mask=inside)
    tl.store(out + 3 * channels + c, offset, mask=inside)


@triton.jit
def _normalize(
    x, coefficients, residual, out, above, rows, channels, across,
    activation: tl.constexpr, adds: tl.constexpr, high: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    strip = tl.program_id(0) % across
    c = strip * wide + tl.arange(0, wide)
    inside = c < channels
    scale = tl.load(coefficients + 2 * channels + c, mask=inside, other=0.0)
    offset = tl.load(coefficients + 3 * channels + c, mask=inside, other=0.0)
    r = tl.program_id(0) // across * high + tl.arange(0, high)
    there = (r < rows)[:, None] & inside[None, :]
    at = r.to(tl.int64)[:, None] * channels + c[None, :]
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    value = value * scale[None, :] + offset[None, :]
    if adds:
        value += tl.load(residual + at, mask=there, other=0.0).to(tl.float32)
    if activation == "relu":
        if adds:
            bits = tl.reshape((value > 0).to(tl.int32), (high, wide // 8, 8))
            byte = tl.sum(bits << tl.arange(0, 8)[None, None, :], 2)
            b = strip * (wide // 8) + tl.arange(0, wide // 8)
            place = r.to(tl.int64)[:, None] * (channels // 8) + b[None, :]
            known = (r < rows)[:, None] & (b < channels // 8)[None, :]
            tl.store(above + place, byte.to(tl.uint8), mask=known)
        value = tl.where(value < 0, 0.0, value)  # not tl.maximum, which makes 0 of NaN
    elif activation == "relu6":
        value = tl.where(value < 0, 0.0, tl.where(value > 6, 6.0, value))
    elif activation == "silu":
        value *= tl.sigmoid(value)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=there)


@triton.jit
def _behind(grad, value, activation: tl.constexpr):
    """A gradient behind the activation of a value."""
    if activation == "relu":
        grad = tl.where(value > 0, grad, 0.0)
    elif activation == "relu6":
        grad = tl.where((value > 0) & (value < 6), grad, 0.0)
    elif activation == "silu":
        share = tl.sigmoid(value)
        grad *= share * (1 + value * (1 - share))
    return grad


@triton.jit
def _read_all(
    gradient, second, x, above, start, rows, channels, strip,
    bits: tl.constexpr, two: tl.constexpr, deep: tl.constexpr, high: tl.constexpr,
    wide: tl.constexpr,
):  # fmt: skip
    """Tiles of the gradients of one or two readers, of the input, and of the rectifier's bits."""
    c = strip * wide + tl.arange(0, wide)
    inside = c < channels
    grads = _tiles(gradient, start, rows, channels, c, inside, deep, high)
    values = _tiles(x, start, rows, channels, c, inside, deep, high)
    others = grads
    bytes = grads
    if two:
        others = _tiles(second, start, rows, channels, c, inside, deep, high)
    if bits:  # there are at least eight channels then
        eight = strip * (wide // 8) + tl.arange(0, wide // 8)
        bytes = _tiles(above, start, rows, channels // 8, eight, eight < channels // 8, deep, high)
    return grads, others, values, bytes


@triton.jit
def _gradient_sums(
    gradient, second, x, coefficients, above, kept, partial, rows, channels, programs, across,
    activation: tl.constexpr, bits: tl.constexpr, two: tl.constexpr, keeps: tl.constexpr,
    deep: tl.constexpr, high: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    program, strip = tl.program_id(0) // across, tl.program_id(0) % across
    c = strip * wide + tl.arange(0, wide)
    inside = c < channels
    mean = tl.load(coefficients + c, mask=inside, other=0.0)[None, :]
    rstd = tl.load(coefficients + channels + c, mask=inside, other=0.0)
    scale = tl.load(coefficients + 2 * channels + c, mask=inside, other=0.0)[None, :]
    offset = tl.load(coefficients + 3 * channels + c, mask=inside, other=0.0)[None, :]
    hats = tl.zeros((high, wide), tl.float32)
    total = tl.zeros((high, wide), tl.float32)
    blocks = tl.cdiv(rows, high * deep)
    start = (blocks - 1 - program) * high * deep
    grads, others, values, bytes = _read_all(
        gradient, second, x, above, start, rows, channels, strip, bits, two, deep, high, wide
    )
    for _ in range(program, blocks, programs):
        here = start
        grads_now, values_now, others_now, bytes_now = grads, values, others, bytes
        start -= programs * high * deep
        grads, others, values, bytes = _read_all(
            gradient, second, x, above, start, rows, channels, strip, bits, two, deep, high, wide
        )
        for number in tl.static_range(deep):
            grad, value = grads_now[number].to(tl.float32), values_now[number].to(tl.float32)
            if two:
                grad += others_now[number].to(tl.float32)
            if bits:
                byte = bytes_now[number].to(tl.int32)[:, :, None]
                spread = (byte >> tl.arange(0, 8)[None, None, :]) & 1
                grad = tl.where(tl.reshape(spread, (high, wide)) > 0, grad, 0.0)
            else:
                grad = _behind(grad, value * scale + offset, activation)
            if keeps:
                r = number * high + tl.arange(0, high)
                there = (r < rows - here)[:, None] & inside[None, :]
                at = here.to(tl.int64) * channels + r[:, None] * channels + c[None, :]
                tl.store(kept + at, grad.to(kept.dtype.element_ty), mask=there)
            total += grad
            hats += grad * (value - mean)
    row = partial + program.to(tl.int64) * 2 * channels
    tl.store(row + c, tl.sum(hats, 0) * rstd, mask=inside)
    tl.store(row + channels + c, tl.sum(total, 0), mask=inside)


@triton.jit
def _finish_gradients(
    partial, coefficients, out, programs, share, channels,
    high: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    c = tl.program_id(0) * wide + tl.arange(0, wide)
    inside = c < channels
    weight, bias = _sum_up(partial, programs, channels, c, inside, high, wide)
    mean = tl.load(coefficients + c, mask=inside, other=0.0)
    rstd = tl.load(coefficients + channels + c, mask=inside, other=0.0)
    scale = tl.load(coefficients + 2 * channels + c, mask=inside, other=0.0)
    slope = -scale * rstd * weight * share
    tl.store(out + c, weight, mask=inside)
    tl.store(out + channels + c, bias, mask=inside)
    tl.store(out + 2 * channels + c, scale, mask=inside)
    tl.store(out + 3 * channels + c, slope, mask=inside)
    tl.store(out + 4 * channels + c, -scale * bias * share - slope * mean, mask=inside)


@triton.jit
def _input_gradient(
    gradient, x, coefficients, gradients, out, rows, channels, across,
    activation: tl.constexpr, high: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    c = tl.program_id(0) % across * wide + tl.arange(0, wide)
    inside = c < channels
    factor = tl.load(gradients + 2 * channels + c, mask=inside, other=0.0)
    slope = tl.load(gradients + 3 * channels + c, mask=inside, other=0.0)
    shift = tl.load(gradients + 4 * channels + c, mask=inside, other=0.0)
    r = tl.program_id(0) // across * high + tl.arange(0, high)
    there = (r < rows)[:, None] & inside[None, :]
    at = r.to(tl.int64)[:, None] * channels + c[None, :]
    grad = tl.load(gradient + at, mask=there, other=0.0).to(tl.float32)
    value = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    if activation != "none":
        scale = tl.load(coefficients + 2 * channels + c, mask=inside, other=0.0)
        offset = tl.load(coefficients + 3 * channels + c, mask=inside, other=0.0)
        grad = _behind(grad, value * scale[None, :] + offset[None, :], activation)
    result = grad * factor[None, :] + value * slope[None, :] + shift[None, :]
    tl.store(out + at, result.to(out.dtype.element_ty), mask=there)


def batch_coefficients(
    x: Tensor, weight: Tensor, bias: Tensor, origin: Tensor, *, eps: float
) -> Tensor:
    """See :func:`acclimate.acceleration.plain_kernels.batch_coefficients`."""
    channels = x.shape[1]
    rows = x.numel() // channels
    programs, across, high, wide = shares(rows, channels, **_MOMENTS)
    partial = x.new_empty((programs, 2, channels), dtype=torch.float32)
    out = x.new_empty((4, channels), dtype=torch.float32)
    _moments[(programs * across,)](
        x, origin, partial, rows, channels, programs, across, _MOMENTS["deep"], high, wide
    )
    _finish_moments[(triton.cdiv(channels, 8),)](
        partial, origin, weight, bias, out, programs, rows, channels, eps, 128, 8
    )
    return out


def normalize(
    x: Tensor, coefficients: Tensor, residual: Tensor | None, *, activation: Activation
) -> tuple[Tensor, Tensor | None]:
    """See :func:`acclimate.acceleration.plain_kernels.normalize`; a byte has eight channels."""
    channels = x.shape[1]
    rows = x.numel() // channels
    out = torch.empty_like(x)
    adds = residual is not None
    above = None
    if adds and activation == "relu":
        above = x.new_empty((rows, channels // 8), dtype=torch.uint8)
    high, wide = tile(channels, values=4096)
    across = triton.cdiv(channels, wide)
    _normalize[(triton.cdiv(rows, high) * across,)](
        x, coefficients, residual if adds else x, out, x if above is None else above,
        rows, channels, across, activation, adds, high, wide,
    )  # fmt: skip
    return out, above


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
    """See :func:`acclimate.acceleration.plain_kernels.parameter_gradients`."""
    channels = x.shape[1]
    rows = x.numel() // channels
    programs, across, high, wide = shares(rows, channels, **_SUMS)
    partial = x.new_empty((programs, 2, channels), dtype=torch.float32)
    bits, two = above is not None, second is not None
    kept = torch.empty_like(out_gradient) if bits or two else out_gradient
    _gradient_sums[(programs * across,)](
        out_gradient, second if two else out_gradient, x, coefficients, above if bits else x, kept,
        partial, rows, channels, programs, across,
        activation, bits, two, bits or two, _SUMS["deep"], high, wide,
    )  # fmt: skip
    return finish_gradients(partial, coefficients, share=1 / rows if batch else 0.0), kept


def finish_gradients(partial: Tensor, coefficients: Tensor, *, share: float) -> Tensor:
    """Sum up what the programs found; ``share`` is that of one pixel in the statistics."""
    programs, _, channels = partial.shape
    out = partial.new_empty((5, channels))
    _finish_gradients[(triton.cdiv(channels, 8),)](
        partial, coefficients, out, programs, share, channels, 128, 8
    )
    return out


def input_gradient(
    gradient: Tensor,
    x: Tensor,
    coefficients: Tensor,
    gradients: Tensor,
    *,
    activation: Activation,
) -> Tensor:
    """See :func:`acclimate.acceleration.plain_kernels.input_gradient`."""
    channels = x.shape[1]
    rows = x.numel() // channels
    out = torch.empty_like(x)
    high, wide = tile(channels, values=4096)
    across = triton.cdiv(channels, wide)
    _input_gradient[(triton.cdiv(rows, high) * across,)](
        gradient, x, coefficients, gradients, out, rows, channels, across, activation, high, wide
    )
    return out


_POOL_SUMS = {"values": 1024, "widest": 128, "deep": 1, "most": 1056}


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
    """See :func:`acclimate.acceleration.plain_kernels.normalize_and_pool`."""
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
    """See :func:`acclimate.acceleration.plain_kernels.pooled_gradients`."""
    channels = x.shape[1]
    rows = out_gradient.numel() // channels
    programs, across, high, wide = shares(rows, channels, **_POOL_SUMS)
    partial = x.new_empty((programs, 2, channels), dtype=torch.float32)
    two = second is not None
    _pooled_sums[(programs * across,)](
        out_gradient, second if two else out_gradient, x, coefficients, chosen, partial,
        rows, channels, programs, across, *x.shape[2:], *out_gradient.shape[2:],
        window, stride, padding, two, high, wide,
    )  # fmt: skip
    return finish_gradients(partial, coefficients, share=0.0)
