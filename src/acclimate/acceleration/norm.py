"""Batch norm, residual and rectifier as one operation with its own backward pass."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from acclimate.acceleration import plain_kernels
from acclimate.acceleration.plain_kernels import Activation

__all__ = ["FusedNorm", "Pool", "Statistics", "fused_norm", "interferes", "mean_pool"]

_LAST = torch.channels_last
Tell: TypeAlias = Callable[[Tensor, Tensor, int], None]


class Statistics(NamedTuple):
    """Mean and variance of the source, and whether those of the batch take their place."""

    mean: Tensor
    var: Tensor
    eps: float
    batch: bool


class Pool(NamedTuple):
    """Max pooling: how wide and how far apart the windows are."""

    window: int
    stride: int
    padding: int


class _FusedNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        coefficients: Tensor,
        batch: bool,
        activation: Activation,
        fork: bool,
    ) -> Tensor | tuple[Tensor, Tensor]:
        out, above = _pieces(x).normalize(x, coefficients, residual, activation=activation)
        ctx.save_for_backward(x, coefficients, above)
        ctx.batch, ctx.adds = batch, residual is not None
        ctx.activation = activation
        ctx.set_materialize_grads(False)
        return (out, out.detach()) if fork else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        first, second = _given(grads)
        if first is None:
            return (None,) * 8
        x, coefficients, above = ctx.saved_tensors
        pieces = _pieces(x)
        gradients, kept = pieces.parameter_gradients(
            first, second, x, coefficients, above, activation=ctx.activation, batch=ctx.batch
        )
        own = None
        if ctx.needs_input_grad[0]:
            done = above is not None or second is not None
            left = "none" if done else ctx.activation
            own = pieces.input_gradient(kept, x, coefficients, gradients, activation=left)
        return own, gradients[0], gradients[1], kept if ctx.adds else None, *[None] * 4


class _FusedPool(torch.autograd.Function):
    """Where nothing before it learns: there is no gradient of the input."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        coefficients: Tensor,
        pool: Pool,
        fork: bool,
    ) -> Tensor | tuple[Tensor, Tensor]:
        out, chosen = _pieces(x).normalize_and_pool(x, coefficients, **pool._asdict())
        ctx.save_for_backward(x, coefficients, chosen)
        ctx.pool = pool
        ctx.set_materialize_grads(False)
        return (out, out.detach()) if fork else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        first, second = _given(grads)
        if first is None:
            return (None,) * 6
        x, coefficients, chosen = ctx.saved_tensors
        gradients = _pieces(x).pooled_gradients(
            first, second, x, coefficients, chosen, **ctx.pool._asdict()
        )
        return None, gradients[0], gradients[1], None, None, None


@torch.no_grad()
def _coefficients(x: Tensor, weight: Tensor, bias: Tensor, statistics: Statistics) -> Tensor:
    """How to normalise; that they depend on the input is known to the backward pass."""
    mean, var, eps, batch = statistics
    if batch:
        found: Tensor = _pieces(x).batch_coefficients(x, weight, bias, mean, eps=eps)
        return found
    return plain_kernels.coefficients(mean, var, weight, bias, eps=eps)


def _given(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, Tensor | None]:
    """The gradients that there are, of one reader or of two."""
    given = [each.contiguous(memory_format=_LAST) for each in grads if each is not None]
    first, second, *_ = [*given, None, None]
    return first, second


def _pieces(x: Tensor) -> ModuleType:
    if not x.is_cuda:
        return plain_kernels
    from acclimate.acceleration import triton_kernels

    return triton_kernels


def fused_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    *,
    statistics: Statistics,
    activation: Activation = "none",
    pool: Pool | None = None,
    fork: bool = False,
    tell: Tell | None = None,
) -> Any:
    """Batch norm of images, plus ``residual``, activated, and pooled, in few passes over memory.

    Only a rectifier may follow a residual. ``fork`` hands the result to two readers, so that adding
    up their gradients is part of the backward pass. ``tell`` is told mean, variance and number of
    the values of each channel that were normalised with.

    >>> x, one, zero = torch.rand(2, 8, 4, 4), torch.ones(8), torch.zeros(8)
    >>> own = Statistics(zero, one, 1e-5, batch=True)
    >>> y = fused_norm(x, one, zero, x, statistics=own, activation="relu")
    >>> torch.allclose(y, (F.batch_norm(x, None, None, training=True) + x).relu(), atol=1e-5)
    True
    """
    x = x.contiguous(memory_format=_LAST)
    if residual is not None:
        residual = residual.to(x.dtype).contiguous(memory_format=_LAST)
    found = _coefficients(x, weight, bias, statistics)
    if tell is not None:
        tell(found[0], found[1].pow(-2) - statistics.eps, x.numel() // x.shape[1])
    rectified = activation == "relu" and residual is None
    if pool is not None and rectified and not x.requires_grad:
        return _FusedPool.apply(x, weight, bias, found, pool, fork)  # type: ignore[no-untyped-call]
    split = fork and pool is None
    out = _FusedNorm.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, residual, found, statistics.batch, activation, split
    )
    if pool is not None:
        out = F.max_pool2d(out, *pool)
    return (out, out) if fork and not split else out


def interferes(module: nn.Module) -> bool:
    """Whether a module has a hook that does more than observe.

    One that comes before the module and says that it is ``steady`` does not: it looks, and does the
    same every time.

    >>> interferes(nn.ReLU())
    False
    """
    before = module._forward_pre_hooks.values()
    behind = module._forward_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(behind) or not all(getattr(hook, "steady", False) for hook in before)


class FusedNorm(nn.Module):
    """A batch-norm layer in the place of the original: its parameters, its statistics, its mode.

    A hook on the original that only observes is called; with any other the original runs.
    """

    def __init__(self, layer: nn.BatchNorm2d, *, activation: Activation = "none") -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.activation = activation  # the layer's own
        self._layer = (layer,)  # in a tuple: no module of this one

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None = None,
        activation: Activation = "none",
        pool: tuple[int, int, int] | None = None,
        fork: bool = False,
    ) -> Any:
        """Normalise, add, activate, pool; twice the same, if two will read it."""
        layer = self._layer[0]
        fits = residual is None or (residual.shape == x.shape and x.shape[1] % 8 == 0)
        if interferes(layer) or x.ndim != 4 or not fits:
            own: dict[str, Tensor] = {"weight": self.weight, "bias": self.bias}
            out: Tensor = functional_call(layer, own, (x,))
            out = out if residual is None else out + residual
            out = _ACTIVATIONS[activation](out)
            out = out if pool is None else F.max_pool2d(out, *pool)
            return (out, out) if fork else out
        tell: Tell | None = None
        for hook in layer._forward_pre_hooks.values():
            if layer.training and hasattr(hook, "tell"):
                tell = hook.tell
            else:
                hook(layer, (x,))
        assert layer.running_mean is not None
        assert layer.running_var is not None
        source = Statistics(layer.running_mean, layer.running_var, layer.eps, layer.training)
        return fused_norm(
            x,
            self.weight,
            self.bias,
            residual,
            statistics=source,
            activation=activation if self.activation == "none" else self.activation,
            pool=None if pool is None else Pool(*pool),
            fork=fork,
            tell=tell,
        )


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "relu6": F.relu6,
    "silu": F.silu,
}


def mean_pool(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """What ``avg_pool2d`` gives; windows that tile images with channels last are averaged here.

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
    """Whether windows fill images that have their channels last."""
    last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return last and not any(length % side for length in x.shape[2:])
