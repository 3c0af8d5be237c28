"""Batch-norm statistics: read from a batch, pooled over many, mixed with the source's.

The model's own buffers are never written while it learns, so the source model is always one switch
away; they are written once, by :meth:`StatisticsControl.write`, when the plain model is returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate import parallel

__all__ = [
    "StatisticsControl",
    "StatisticsPool",
    "batch_statistics",
    "per_channel",
]


def batch_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance of every channel over the batch and all positions."""
    dims = [0, *range(2, x.ndim)]
    mean = x.mean(dim=dims)
    # Two passes, but on a CPU less than half the time of torch.var_mean over these dimensions.
    return mean, (x - per_channel(mean, x)).square().mean(dim=dims)


def per_channel(values: Tensor, like: Tensor) -> Tensor:
    """Values by channel, shaped to work on images or features like these."""
    return values.view(1, -1, *([1] * (like.ndim - 2)))


class StatisticsPool:
    """Mean and variance of each layer's input over many batches, pooled as if they were one.

    Gathers until :meth:`close`; ``counting`` says which part of an input counts. ``totals`` are
    tensors to add up in, kept from pool to pool: a captured forward pass knows them by address.
    """

    def __init__(
        self,
        layers: dict[str, _BatchNorm],
        *,
        counting: Callable[[Tensor], Tensor],
        totals: dict[str, Tensor],
    ) -> None:
        self.counting, self._totals = counting, totals
        self._sums: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        self.open, self.paused = True, False
        for total in totals.values():
            total.zero_()
        # Before the hooks that mix statistics: those move the input.
        self._handles = [
            layer.register_forward_pre_hook(_Gather(self, name), prepend=True)
            for name, layer in layers.items()
        ]

    def total(self, name: str, channels: int, device: torch.device) -> Tensor:
        """Count, sums of means and of squares of a layer, to add up in."""
        total = self._totals.get(name)
        if total is None or total.device != device:
            total = torch.zeros(1 + 2 * channels, dtype=torch.float64, device=device)
            self._totals[name] = total
        return total

    def close(self) -> None:
        """Stop gathering."""
        for handle in self._handles:
            handle.remove()
        if self.open:
            self.open = False
            for name, total in self._totals.items():
                n = (len(total) - 1) // 2
                count, first, second = total.clone().split([1, n, n])
                self._sums[name] = count, first, second

    def statistics(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Mean and variance by layer, over the images of all processes."""
        return {
            name: (first / n, (second / n - (first / n) ** 2).clamp_min(0))
            for name, (n, first, second) in self._summed().items()
            if float(n)  # else nothing passed the layer this time
        }

    def _summed(self) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        self.close()
        if not parallel.active():
            return self._sums
        totals = {
            name: (n.clone(), first.clone(), second.clone())
            for name, (n, first, second) in self._sums.items()
        }
        parallel.sum_in_place([tensor for sums in totals.values() for tensor in sums])
        return totals


class _Gather:
    """A hook on a layer that adds what passes it to a pool; a fused layer passes its statistics."""

    steady = True  # it looks, and adds up in place

    def __init__(self, pool: StatisticsPool, name: str) -> None:
        self._pool, self._name = pool, name

    def __call__(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = self._pool.counting(inputs[0].detach())
        total = self._pool.total(self._name, x.shape[1], x.device)  # each process must have one
        if not self._pool.paused and x.numel():
            _add(total, *batch_statistics(x.float()), x.numel() // x.shape[1])

    def tell(self, mean: Tensor, var: Tensor, count: int) -> None:
        """Add so many values of this mean and variance."""
        total = self._pool.total(self._name, len(mean), mean.device)
        if not self._pool.paused:
            _add(total, mean, var, count)


def _add(total: Tensor, mean: Tensor, var: Tensor, count: int) -> None:
    mean = mean.double()
    total.add_(torch.cat([torch.ones_like(mean[:1]), mean, var.double() + mean**2]), alpha=count)


def _statistics_of_all(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same over what all processes have of the batch, however many images each has.

    Counts, means and squared distances are exchanged at once and combined as by Chan et al. (1979):
    as exact as two passes, where a sum of squares would lose its digits.
    """
    dims = [0, *range(2, x.ndim)]
    own = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x  # counts must be exact
    n = x.numel() // x.shape[1]
    mean = own.sum(dim=dims) / max(n, 1)
    distances = (own - per_channel(mean, own)).square().sum(dim=dims)
    rows = parallel.stacked(torch.cat([mean.new_tensor([n]), mean, distances]))
    counts, means, squares = rows.split([1, x.shape[1], x.shape[1]], dim=1)
    total = counts.sum()
    mean = (counts * means).sum(dim=0) / total
    var = (squares + counts * (means - mean).square()).sum(dim=0) / total
    return mean.to(x.dtype), var.to(x.dtype)


class _Move:
    """A hook on a layer that moves what it is shown; not a closure, which no copy would follow."""

    def __init__(
        self, control: StatisticsControl, name: str, weight: float, update_running: bool
    ) -> None:
        self._control = control
        self._how: dict[str, Any] = {
            "name": name,
            "weight": weight,
            "update_running": update_running,
        }

    def __call__(self, layer: _BatchNorm, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (self._control.moved(layer, inputs[0], **self._how), *inputs[1:])


@dataclass
class StatisticsControl:
    """The switchboard over a model's batch-norm layers, and their running estimates if any.

    Where several processes share a batch, its statistics are those of all their images.
    """

    layers: dict[str, _BatchNorm]
    running: dict[str, Tensor] = field(default_factory=dict)
    _handles: list[Any] = field(default_factory=list)
    _setting: tuple[float, bool, bool] | None = None
    _stand_in: bool = False
    _totals: dict[str, Tensor] = field(default_factory=dict)
    _pool: StatisticsPool | None = None

    @property
    def setting(self) -> tuple[float, bool, bool] | None:
        """How the layers are set: what distinguishes one kind of forward pass from another."""
        return self._setting

    def use(self, weight: float, *, update_running: bool = False) -> None:
        """Let the next forward passes normalise with this share of the batch's own statistics."""
        shared = parallel.active()
        if self._setting == (weight, update_running, shared):
            return
        self.release()
        self._setting = (weight, update_running, shared)
        for name, layer in self.layers.items():
            # With tracking off, a layer in training mode reads the batch and writes no buffer.
            native = weight == 1.0 and not self.running and not shared
            layer.training = native  # not train(): a fused layer's own dropout must stay off
            layer.track_running_stats = not native
            if not native and (weight > 0 or self.running):
                hook = _Move(self, name, weight, update_running)
                self._handles.append(layer.register_forward_pre_hook(hook))

    def release(self) -> None:
        """Back to the source's statistics, as ``model.eval()`` would have it."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._setting = None
        for layer in self.layers.values():
            layer.training = False
            layer.track_running_stats = True

    def expect_stand_in(self, stand_in: bool) -> None:
        """Whether the next images only stand in for a share that is empty, and do not count."""
        self._stand_in = stand_in

    def of_batch(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of a layer's input over the batch, of all processes."""
        return _statistics_of_all(self._counting(x)) if parallel.active() else batch_statistics(x)

    def _counting(self, x: Tensor) -> Tensor:
        return x[:0] if self._stand_in else x

    def moved(
        self, layer: _BatchNorm, x: Tensor, *, name: str, weight: float, update_running: bool
    ) -> Tensor:
        """The input moved so that the layer's own formula yields the mixed statistics.

        Any subclass of batch norm (fused activations included) then works unchanged, and gradients
        flow through the batch's share of the statistics.
        """
        source_mean, source_var = layer.running_mean, layer.running_var
        assert source_mean is not None
        assert source_var is not None
        mean = self.running.get(f"{name}.mean", source_mean)
        var = self.running.get(f"{name}.var", source_var)
        fine = x.to(torch.promote_types(x.dtype, torch.float32))  # squares overflow in float16
        if weight > 0:
            batch_mean, batch_var = self.of_batch(fine)
            mean = weight * batch_mean + (1 - weight) * mean
            var = weight * batch_var + (1 - weight) * var
        if update_running:
            self.running[f"{name}.mean"] = mean.detach()
            self.running[f"{name}.var"] = var.detach()
        scale = torch.sqrt((source_var + layer.eps) / (var + layer.eps))
        shift = source_mean - mean * scale
        return (fine * per_channel(scale, x) + per_channel(shift, x)).to(source_mean.dtype)

    def buffers(self) -> dict[str, Tensor]:
        """Copies of the model's own statistics, to put back with :meth:`load_buffers`."""
        return {
            f"{name}.{key}": tensor.clone()
            for name, layer in self.layers.items()
            for key, tensor in layer.named_buffers(recurse=False)
        }

    def load_buffers(self, buffers: dict[str, Tensor]) -> None:
        """Put copied statistics back into the model."""
        for name, layer in self.layers.items():
            for key, tensor in layer.named_buffers(recurse=False):
                tensor.copy_(buffers[f"{name}.{key}"])

    def pool(self) -> StatisticsPool:
        """Start gathering the statistics of everything that passes the layers."""
        self._pool = StatisticsPool(self.layers, counting=self._counting, totals=self._totals)
        return self._pool

    @property
    def gathering(self) -> bool:
        """Whether a pool is open."""
        return self._pool is not None and self._pool.open

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """Within this, forward passes move no estimate and count in no pool."""
        running = dict(self.running)
        if self._pool is not None:
            self._pool.paused = True
        try:
            yield
        finally:
            self.running.update(running)
            if self._pool is not None:
                self._pool.paused = False

    def in_units(self, pool: StatisticsPool) -> dict[str, Tensor]:
        """Gathered means and standard deviations (2×C), as the model's own would see them.

        By layer, less the model's own, in units of the model's standard deviation.
        """
        found = {}
        for name, (mean, var) in pool.statistics().items():
            layer = self.layers[name]
            assert layer.running_mean is not None
            assert layer.running_var is not None
            unit = (layer.running_var.double() + layer.eps).sqrt()
            location = (mean - layer.running_mean.double()) / unit
            found[name] = torch.stack([location, (var + layer.eps).sqrt() / unit - 1])
        return found

    def distances(self, pool: StatisticsPool) -> list[float]:
        """How far gathered statistics are from the model's own, layer by layer.

        Root mean square over channels of the difference in mean and in standard deviation, both in
        units of the model's standard deviation.
        """
        found = self.in_units(pool).values()
        layers = [(location**2 + scale**2).mean().sqrt() for location, scale in found]
        return torch.stack(layers).tolist() if layers else []

    def write(self, pool: StatisticsPool, *, weight: float) -> None:
        """Write weight · gathered + (1 - weight) · source into the model's buffers."""
        for name, (mean, var) in pool.statistics().items():
            layer = self.layers[name]
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.mul_(1 - weight).add_(mean.to(layer.running_mean), alpha=weight)
            layer.running_var.mul_(1 - weight).add_(var.to(layer.running_var), alpha=weight)
