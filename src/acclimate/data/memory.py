"""How many bytes of images may be kept in memory, of the host and of the device."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from acclimate.errors import AcclimateError

__all__ = ["Kept", "available_memory", "cache_budget", "device_budget"]

_UNKNOWN = 4 * 2**30  # where the system does not say: what a small laptop can spare


def cache_budget(cache: int | None) -> int:
    """The bytes a source may keep: as asked, or a third of what is available now."""
    return available_memory() // 3 if cache is None else _checked(cache, "cache")


def device_budget(device: torch.device, room: int | None) -> int:
    """The bytes images may take on a device: as asked, or a third of what is free on a GPU now.

    Elsewhere none: the memory of the host is where sources keep them already.
    """
    if room is not None:
        return _checked(room, "room")
    return torch.cuda.mem_get_info(device)[0] // 3 if device.type == "cuda" else 0


def _checked(size: int, name: str) -> int:
    if size < 0:
        raise AcclimateError(f"expected {name} >= 0 bytes, got {size}")
    return size


class Kept:
    """uint8 images that are made when they are first asked for, and kept while all would fit.

    Args:
        shape: of all of them, N × channels × height × width.
        cache: bytes they may take; None is a third of what is available.
    """

    def __init__(self, shape: tuple[int, ...], *, cache: int | None) -> None:
        self._size, self._cache = math.prod(shape), None if cache is None else cache_budget(cache)
        self._known = np.zeros(shape[0], np.bool_)
        # Memory is taken only as it is filled.
        self._images = np.empty(shape, np.uint8) if self._fits() else None

    def read(
        self, indices: NDArray[np.int64], make: Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    ) -> NDArray[np.uint8]:
        """The images at these indices; ``make`` makes those that are not kept."""
        if self._images is None:
            return make(indices)
        missing = np.unique(indices[~self._known[indices]])
        if len(missing):
            if not self._fits():
                return make(indices)
            self._images[missing] = make(missing)
            self._known[missing] = True  # last: from now on they are not made again
        return self._images[indices]

    @property
    def keeps(self) -> bool:
        """Whether images are kept at all."""
        return self._images is not None

    def _fits(self) -> bool:
        """Whether all may be kept; checked again as they fill, since others may take memory too."""
        if self._cache is not None:
            return self._size <= self._cache
        taken = self._size // len(self._known) * int(self._known.sum())
        return self._size <= cache_budget(None) + taken // 3


def available_memory() -> int:
    """Bytes this process could still take, within its container's limit where there is one."""
    return int(min(_system_memory(), _container_memory()))


def _system_memory() -> int:
    try:
        # MemAvailable counts the page cache that would be given up; sysconf's free pages do not.
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return _UNKNOWN


def _container_memory() -> float:
    root = Path("/sys/fs/cgroup")
    try:
        limit = int((root / "memory.max").read_text())
        used = int((root / "memory.current").read_text())
        counts = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        # Files kept in the page cache count as used, but are given up when memory is wanted.
        used -= int(counts["active_file"]) + int(counts["inactive_file"])
        return max(0, limit - max(0, used))
    except (OSError, ValueError, KeyError):  # no such file, or the word "max"
        return math.inf
