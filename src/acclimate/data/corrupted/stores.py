"""The two published layouts: a tree of JPEG files, and arrays of five severities each."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from acclimate.checkpoint import write_files
from acclimate.data.base import ImageSource
from acclimate.data.shift import JPEG_QUALITY

__all__ = ["ArrayStore", "JpegStore", "Store"]


class Store(ABC):
    """Where corrupted pictures go. Parts can be written in any order and by any thread."""

    storage: str

    @abstractmethod
    def missing(self, kind: str, severity: int) -> NDArray[np.int64]:
        """The numbers of the pictures that are not there yet."""

    @abstractmethod
    def write(
        self, kind: str, severity: int, numbers: NDArray[np.int64], images: NDArray[np.uint8]
    ) -> None:
        """Keep pictures N×H×W×C."""

    @abstractmethod
    def finish(self, kind: str, severity: int) -> None:
        """All pictures of this part are there."""


class JpegStore(Store):
    """ImageNet-C: ``fog/3/n01440764/name.JPEG``, quality 85."""

    storage = f"JPEG, quality {JPEG_QUALITY}"

    def __init__(self, out: Path, source: ImageSource) -> None:
        self._out = out
        self._names = _jpeg_names(source)

    def missing(self, kind: str, severity: int) -> NDArray[np.int64]:
        """The numbers of the pictures without a file."""
        folder = self._out / kind / str(severity)
        there = {
            os.path.relpath(os.path.join(path, file), folder)
            for path, _, files in os.walk(folder)
            for file in files
        }
        return np.array(
            [i for i, name in enumerate(self._names) if str(Path(name)) not in there], np.int64
        )

    def write(
        self, kind: str, severity: int, numbers: NDArray[np.int64], images: NDArray[np.uint8]
    ) -> None:
        """A file for each picture, whole or not there."""
        for number, pixels in zip(numbers, images, strict=True):
            path = self._out / kind / str(severity) / self._names[number]
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.partial")
            picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
            try:
                picture.save(partial, "JPEG", quality=JPEG_QUALITY)
                os.replace(partial, path)
            finally:
                partial.unlink(missing_ok=True)

    def finish(self, kind: str, severity: int) -> None:
        """Nothing is left to do: every file is in its place."""


def _jpeg_names(source: ImageSource) -> list[str]:
    """A file name for each picture: its own, or its number in the folder of its class."""
    if any("." in name for name in source.names):
        stems = [str(PurePosixPath(name).with_suffix("")) for name in source.names]
        counts = Counter(stems)
        # a.png and a.jpg would meet in a.JPEG
        return [
            f"{stem if counts[stem] == 1 else name}.JPEG"
            for stem, name in zip(stems, source.names, strict=True)
        ]
    digits = len(str(len(source)))
    files = [f"{name.zfill(digits)}.JPEG" for name in source.names]
    if source.labels is None:
        return files
    return [f"{label}/{file}" for label, file in zip(source.labels.tolist(), files, strict=True)]


class ArrayStore(Store):
    """CIFAR-10-C: ``fog.npy`` of five severities in a row, and ``labels.npy`` for them.

    Single severities go to ``fog-3.npz`` with images and labels, which has no place in that layout
    but can be used anywhere images are taken.
    """

    storage = "npy, raw uint8"

    def __init__(
        self,
        out: Path,
        source: ImageSource,
        shape: tuple[int, int, int],
        shifts: dict[str, tuple[int, ...]],
    ) -> None:
        self._out, self._count, self._shape = out, len(source), shape
        self._labels = None if source.labels is None else source.labels.numpy()
        self._severities = shifts
        self._open: dict[Path, tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}
        if self._labels is not None and any(len(each) == 5 for each in shifts.values()):
            whole = np.tile(self._labels, 5)
            write_files({out / "labels.npy": lambda path: _save(path, whole)})

    def missing(self, kind: str, severity: int) -> NDArray[np.int64]:
        """The numbers of the pictures that were not written."""
        final, rows = self._place(kind, severity)
        if final.exists():
            return np.zeros(0, np.int64)
        _, done = self._parts(final, rows.stop if final.suffix == ".npz" else 5 * self._count)
        return np.flatnonzero(done[rows] == 0)

    def write(
        self, kind: str, severity: int, numbers: NDArray[np.int64], images: NDArray[np.uint8]
    ) -> None:
        """Fill rows; they count as written once they are on the disk."""
        final, rows = self._place(kind, severity)
        pixels, done = self._open[final]
        pixels[rows.start + numbers] = images
        _flush(pixels)
        done[rows.start + numbers] = 1
        _flush(done)

    def finish(self, kind: str, severity: int) -> None:
        """Give the array its name once all its rows are there."""
        final, _ = self._place(kind, severity)
        if final not in self._open:
            return
        pixels, done = self._open[final]
        if not done.all():  # other severities are still to come
            return
        del self._open[final]
        if final.suffix == ".npz":
            write_files({final: lambda path: _savez(path, pixels, self._labels)})
            _part(final, "part").unlink()
        else:
            os.replace(_part(final, "part"), final)
        _part(final, "rows").unlink()

    def _place(self, kind: str, severity: int) -> tuple[Path, slice]:
        name = "frost" if kind.startswith("frost") else kind
        if len(self._severities[name]) == 5:
            start = (severity - 1) * self._count
            return self._out / f"{kind}.npy", slice(start, start + self._count)
        return self._out / f"{kind}-{severity}.npz", slice(0, self._count)

    def _parts(self, final: Path, rows: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The array under construction and one flag for each of its rows."""
        if final not in self._open:
            height, width, channels = self._shape
            self._open[final] = (
                _mapped(_part(final, "part"), (rows, height, width, channels)),
                _mapped(_part(final, "rows"), (rows,)),
            )
        return self._open[final]


def _part(final: Path, suffix: str) -> Path:
    return final.with_name(f".{final.name}.{suffix}")


def _mapped(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    if path.exists():
        return np.lib.format.open_memmap(path, mode="r+")
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):
        # Claim the space now: a mapped file that meets a full disk later kills the process.
        with path.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _flush(array: NDArray[np.uint8]) -> None:
    if isinstance(array, np.memmap):
        array.flush()


def _save(path: Path, array: NDArray[np.generic]) -> None:
    with path.open("wb") as file:
        np.save(file, array)


def _savez(path: Path, images: NDArray[np.uint8], labels: NDArray[np.int64] | None) -> None:
    with path.open("wb") as file:
        if labels is None:
            np.savez(file, images=images)
        else:
            np.savez(file, images=images, labels=labels)
