"""An array on disk that is filled row by row, and remembers over a kill which rows it has."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["GrowingArray"]


class GrowingArray:
    """A .npy file under construction, and beside it one flag for each row that is on the disk."""

    def __init__(self, final: Path, shape: tuple[int, ...]) -> None:
        self._final = final
        self._part = final.with_name(f".{final.name}.part")
        self._rows = final.with_name(f".{final.name}.rows")
        pixels, flags = _reopened(self._part, shape), _reopened(self._rows, shape[:1])
        if pixels is None or flags is None:  # one without the other is worth nothing
            self.remove()
            pixels, flags = _created(self._part, shape), _created(self._rows, shape[:1])
        self.pixels, self._flags = pixels, flags

    def missing(self, start: int, stop: int) -> NDArray[np.int64]:
        """The rows from ``start`` to ``stop`` that are not there yet."""
        return start + np.flatnonzero(self._flags[start:stop] == 0)

    def fill(self, rows: NDArray[np.int64], values: NDArray[np.uint8]) -> None:
        """Write rows; their flags follow when they are on the disk."""
        self.pixels[rows] = values
        self.pixels.flush()
        self._flags[rows] = 1
        self._flags.flush()

    @property
    def complete(self) -> bool:
        """Whether all rows are there."""
        return bool(self._flags.all())

    def rename(self) -> None:
        """Give the file its final name."""
        os.replace(self._part, self._final)
        self._rows.unlink()

    def remove(self) -> None:
        """Take away what was under construction."""
        self._part.unlink(missing_ok=True)
        self._rows.unlink(missing_ok=True)


def _reopened(path: Path, shape: tuple[int, ...]) -> np.memmap | None:
    """The array of a file, if there is one, it is whole and of this shape."""
    try:
        array = np.lib.format.open_memmap(path, mode="r+")
    except (OSError, ValueError):
        return None
    return array if array.shape == shape and array.dtype == np.uint8 else None


def _created(path: Path, shape: tuple[int, ...]) -> np.memmap:
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):
        # Claim the space now: a mapped file that meets a full disk later kills the process.
        try:
            with path.open("rb+") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError:
            path.unlink()
            raise
    return array
