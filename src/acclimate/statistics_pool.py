"""Statistics of what passes the batch-norm layers, gathered over many batches."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate import parallel

__all__ = ["StatisticsPool", "batch_statistics", "per_channel"]


def batch_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and (biased) variance of every channel over the batch and all positions."""
    dims = [0, *range(2, x.ndim)]
    mean = x.mean(dim=dims)
    # Two passes, but on a CPU less than half the time of torch.var_mean over these dimensions.
    return mean, (x - per_channel(mean, x)).square().mean(dim=dims)


def per_channel(values: Tensor, like: Tensor) -> Tensor:
    """Values by channel, shaped to work on pictures or features like these."""
    return values.view(1, -1, *([1] * (like.ndim - 2)))


class StatisticsPool:
    """Mean and variance of each layer's input over many batches, pooled as if they were one.

    Gathers until :meth:`close`; ``counting`` says which part of an input counts. ``totals`` are
    tensors to add up in, kept from pool to pool: a recorded forward pass knows them by address.
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
    """A hook on a layer that adds what passes it to a pool; who has the statistics tells them."""

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
