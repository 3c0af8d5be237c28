"""The two published layouts: a tree of JPEG files, and arrays of five severities each."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from acclimate.data.base import ImageSource
from acclimate.data.corruptions import SEVERITIES, named_in_results
from acclimate.data.files import EXTENSIONS
from acclimate.data.shift import JPEG_QUALITY
from acclimate.files import write_files

__all__ = ["ArrayStore", "GrowingArray", "JpegStore", "Store"]


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


class Store(ABC):
    """Where corrupted images go. Parts can be written in any order and by any thread."""

    storage: str

    @abstractmethod
    def missing(self, name: str, severity: int) -> NDArray[np.int64]:
        """The numbers of the images that are not there yet."""

    @abstractmethod
    def write(
        self, name: str, severity: int, numbers: NDArray[np.int64], images: NDArray[np.uint8]
    ) -> None:
        """Keep images N×H×W×C."""

    @abstractmethod
    def finish(self, name: str, severity: int) -> None:
        """All images of this part are there."""


class JpegStore(Store):
    """ImageNet-C: ``fog/3/n01440764/name.JPEG``, quality 85."""

    storage = f"JPEG, quality {JPEG_QUALITY}"

    def __init__(self, out: Path, source: ImageSource) -> None:
        self._out = out
        self._files = _jpeg_files(source)

    def missing(self, name: str, severity: int) -> NDArray[np.int64]:
        """The numbers of the images without a file."""
        folder = self._folder(name, severity)
        there = {
            os.path.relpath(os.path.join(path, file), folder)
            for path, _, files in os.walk(folder)
            for file in files
        }
        gone = [i for i, file in enumerate(self._files) if str(Path(file)) not in there]
        return np.array(gone, np.int64)

    def write(
        self, name: str, severity: int, numbers: NDArray[np.int64], images: NDArray[np.uint8]
    ) -> None:
        """A file for each image; a process that is killed leaves none half written."""
        for number, pixels in zip(numbers, images, strict=True):
            path = self._folder(name, severity) / self._files[number]
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.partial")
            image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
            try:
                image.save(partial, "JPEG", quality=JPEG_QUALITY)
                os.replace(partial, path)
            finally:
                partial.unlink(missing_ok=True)

    def finish(self, name: str, severity: int) -> None:
        """Nothing is left to do: every file is in its place."""

    def _folder(self, name: str, severity: int) -> Path:
        return self._out / named_in_results(name) / str(severity)


def _jpeg_files(source: ImageSource) -> list[str]:
    """A file for each image: by its own name, or by its number in the folder of its label."""
    own = [PurePosixPath(name) for name in source.names]
    if all(path.suffix.lower() in EXTENSIONS for path in own):
        stems = [str(path.with_suffix("")) for path in own]
        # a.png and a.jpg would meet in a.JPEG
        taken = Counter(stem.casefold() for stem in stems)
        if max(taken.values()) == 1:
            return [f"{stem}.JPEG" for stem in stems]
        return [f"{name}.JPEG" for name in source.names]
    digits = len(str(len(source)))
    files = [f"{number:0{digits}}.JPEG" for number in range(len(source))]
    if source.labels is None:
        return files
    labelled = zip(source.labels.tolist(), files, strict=True)
    # What has no label lies outside all class folders, and is read back so.
    return [file if label < 0 else f"{label}/{file}" for label, file in labelled]


class ArrayStore(Store):
    """CIFAR-10-C: ``fog.npy`` of five severities in a row, and ``labels.npy`` for them.

    Single severities go to ``fog-3.npz`` with images and labels, which has no place in that layout
    but can be used anywhere images are taken.
    """

    storage = "npy, raw uint8"

    def __init__(
        self,
        out: Path,
        *,
        count: int,
        shape: tuple[int, int, int],
        labels: Tensor | None,
        shifts: dict[str, tuple[int, ...]],
    ) -> None:
        self._out, self._count, self._shape, self._shifts = out, count, shape, shifts
        self._labels = None if labels is None else labels.numpy()
        self._growing: dict[Path, GrowingArray] = {}
        if self._labels is not None and any(map(self._is_whole, shifts)):
            whole = np.tile(self._labels, len(SEVERITIES))
            write_files({out / "labels.npy": lambda path: _save(path, whole)})

    def missing(self, name: str, severity: int) -> NDArray[np.int64]:
        """The numbers of the images that were not written."""
        final, start = self._place(name, severity)
        if final.exists():
            return np.zeros(0, np.int64)
        if final not in self._growing:
            rows = self._count * (len(SEVERITIES) if self._is_whole(name) else 1)
            self._growing[final] = GrowingArray(final, (rows, *self._shape))
        return self._growing[final].missing(start, start + self._count) - start

    def write(
        self, name: str, severity: int, numbers: NDArray[np.int64], images: NDArray[np.uint8]
    ) -> None:
        """Fill rows; they count as written once they are on the disk."""
        final, start = self._place(name, severity)
        self._growing[final].fill(start + numbers, images)

    def finish(self, name: str, severity: int) -> None:
        """Give the array its name once all its rows are there."""
        final, _ = self._place(name, severity)
        growing = self._growing.get(final)
        if growing is None or not growing.complete:  # there before, or severities are to come
            return
        if final.suffix == ".npz":
            write_files({final: lambda path: _savez(path, growing.pixels, self._labels)})
            growing.remove()
        else:
            growing.rename()
        del self._growing[final]

    def _is_whole(self, name: str) -> bool:
        return len(self._shifts[name]) == len(SEVERITIES)

    def _place(self, name: str, severity: int) -> tuple[Path, int]:
        """The file a part lies in, and its first row there."""
        known = named_in_results(name)
        if self._is_whole(name):
            return self._out / f"{known}.npy", (severity - 1) * self._count
        return self._out / f"{known}-{severity}.npz", 0


def _save(path: Path, array: NDArray[np.generic]) -> None:
    with path.open("wb") as file:
        np.save(file, array)


def _savez(path: Path, images: NDArray[np.uint8], labels: NDArray[np.int64] | None) -> None:
    with path.open("wb") as file:
        if labels is None:
            np.savez(file, images=images)
        else:
            np.savez(file, images=images, labels=labels)
