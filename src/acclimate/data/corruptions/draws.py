"""Random numbers that depend on the image alone: the same in any batch and on any device.

A counter is hashed with the image's key (SplitMix64), so that every number can be computed by
itself: no generator is stepped through, nothing is drawn on the host for a GPU. The hash is whole
numbers and the normals come from a table, so that CPU and GPU agree to the last bit.
"""

from __future__ import annotations

import functools
import hashlib
import math

import torch
from scipy import special
from torch import Tensor

__all__ = ["LEVELS", "Draws", "image_keys"]

LEVELS = 2**16
"""How many different values a `Draws.levels` has."""

# SplitMix64 (Steele, Lea & Flood 2014) in signed 64-bit numbers, which wrap as unsigned ones do.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_ROUNDS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64), (31, 1))


def image_keys(indices: Tensor, *, seed: int, name: str, severity: int) -> Tensor:
    """One key for each image, by its index in its data set (int64)."""
    # Keyed by name, not by a position in a list, which would move when names are added.
    what = hashlib.blake2b(f"{seed}/{name}/{severity}".encode(), digest_size=8).digest()
    base = int.from_bytes(what, "little", signed=True)
    return _mix(_mix(indices.clone()) + base)


class Draws:
    """Draws for a batch of images; each call continues where the last one stopped.

    >>> keys = image_keys(torch.arange(3), seed=0, name="fog", severity=1)
    >>> torch.equal(Draws(keys).normal(8, 8)[1:2], Draws(keys[1:2]).normal(8, 8))
    True
    """

    def __init__(self, keys: Tensor) -> None:
        self._keys = keys
        self._used = 0

    def uniform(self, *shape: int) -> Tensor:
        """float32 in [0, 1), N × shape, on a grid of 2**-24."""
        halves = self._words(shape, per_word=2).view(torch.int32)
        # A shift of signed numbers brings copies of the sign; the mask takes them away again.
        whole = ((halves >> 8) & 0xFFFFFF)[:, : math.prod(shape)]
        return whole.to(torch.float32).mul_(2.0**-24).view(-1, *shape)

    def levels(self, *shape: int) -> Tensor:
        """int32 from 0 to LEVELS - 1, N × shape: coarser than `uniform`, and half the work."""
        quarters = self._words(shape, per_word=4).view(torch.int16)
        return quarters[:, : math.prod(shape)].to(torch.int32).add_(2**15).view(-1, *shape)

    def normal(self, *shape: int) -> Tensor:
        """float32 standard normals, N × shape.

        There are 65,536 different ones, out to ±4.3: an image of 8 bits cannot tell.
        """
        table = _normal_quantiles(self._keys.device)
        return table.index_select(0, self.levels(*shape).view(-1)).view(-1, *shape)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """int64 from ``low`` to ``high`` - 1, N × shape."""
        words = self._words(shape, per_word=1)
        whole = ((words >> 32) & 0xFFFFFFFF).mul_(high - low) >> 32
        return whole.add_(low).view(-1, *shape)

    def _words(self, shape: tuple[int, ...], *, per_word: int) -> Tensor:
        count = -(-math.prod(shape) // per_word)
        counter = torch.arange(self._used + 1, self._used + count + 1, device=self._keys.device)
        self._used += count
        return _mix(self._keys[:, None] + counter * _GOLDEN)


def _mix(words: Tensor) -> Tensor:
    """Scatter the bits of 64-bit numbers, in place."""
    for shift, factor in _ROUNDS:
        upper = words >> shift
        upper &= (1 << (64 - shift)) - 1
        words ^= upper
        words *= factor
    return words


@functools.lru_cache(maxsize=8)
def _normal_quantiles(device: torch.device) -> Tensor:
    middles = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    return torch.from_numpy(special.ndtri(middles.numpy())).to(device, torch.float32)
