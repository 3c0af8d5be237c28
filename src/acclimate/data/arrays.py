"""Images in one array: in memory, or in a .npy or .npz file."""

from __future__ import annotations

import functools
import hashlib
import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acclimate.data.base import ImageSource
from acclimate.data.decode import (
    channels_first,
    check_dense,
    fit_pixels,
    to_numpy,
    want_preprocessing,
)
from acclimate.data.memory import Kept, available_memory
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = ["ArraySource", "load_arrays", "model_input", "warn_of_unscaled"]

# Normalised pixels stay within a few units; nothing non-negative reaches this unless unscaled.
_LOOKS_UNSCALED = 20.0
_CHUNK_BYTES = 64 * 2**20


class ArraySource(ImageSource):
    """Images in one array or tensor; fitted to the model's size when read, if need be.

    Args:
        images: uint8 images in either order of axes, or float model input.
        preprocessing: how the model was fed; needed for uint8 images.
        labels: as for any source.
        names: as for any source; None names images by their indices.
        class_names: as for any source.
        cache: bytes of fitted images to keep, if all fit; None is a third of what is available.

    >>> ArraySource(torch.zeros(4, 3, 8, 8)).read(torch.tensor([2, 0])).shape
    torch.Size([2, 3, 8, 8])
    """

    def __init__(
        self,
        images: Tensor | NDArray[Any],
        *,
        preprocessing: Preprocessing | None = None,
        labels: Tensor | None = None,
        names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        cache: int | None = None,
    ) -> None:
        self._images = channels_first(to_numpy(images))
        is_float = self._images.dtype.kind == "f"
        if is_float:
            _check_values(self._images)
        else:
            preprocessing = want_preprocessing(preprocessing, "uint8 images")
        count = len(self._images)
        if names is not None and len(names) != count:
            raise AcclimateError(f"expected {count} names, got {len(names)}")
        super().__init__(
            names=[str(index) for index in range(count)] if names is None else names,
            labels=labels,
            class_names=class_names,
            preprocessing=None if is_float else preprocessing,
        )
        self._written = _last_written(self._images)
        self._fitted: Kept | None = None
        if self.preprocessing is not None and self._images.shape[1:] != self.preprocessing.shape:
            self._fitted = Kept((count, *self.preprocessing.shape), cache=cache)

    def read(self, indices: Tensor) -> Tensor:
        """The images at these indices, N×C×H×W on the CPU."""
        rows = indices.numpy()
        if self._fitted is not None:
            return torch.from_numpy(self._fitted.read(rows, self._fit))
        wanted = np.float32 if self.preprocessing is None else np.uint8
        images = np.ascontiguousarray(self._images[rows], dtype=wanted)
        self._refuse_changed()
        return torch.from_numpy(images)

    def _refuse_changed(self) -> None:
        """Refuse pixels of a mapped file that was written to since it was opened."""
        before, now = self._written, _last_written(self._images)
        if before and now and before[0] == now[0] and before != now:
            if self._digest() == self.__dict__.get("_fingerprint"):  # touched, or written as it was
                self._written = now
                return
            raise AcclimateError(
                f"{getattr(self._images, 'filename', 'the file')} was changed since it was opened: "
                "a result would be of neither set of images; put it back, or start again"
            )

    def _fit(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        assert self.preprocessing is not None
        fitted = np.empty((len(rows), *self.preprocessing.shape), np.uint8)
        for place, row in enumerate(rows):
            fitted[place] = fit_pixels(self._images[row], self.preprocessing)
        self._refuse_changed()
        return fitted

    def fingerprint(self) -> str:
        """A digest of shape, type and every byte (about a second for each gigabyte, once)."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        return self._digest()

    def _digest(self) -> str:
        head = f"{self._images.shape} {self._images.dtype.str}".encode()
        total = hashlib.blake2b(head, digest_size=8)
        for _, rows in _chunks(self._images):
            total.update(rows.data)
        return total.hexdigest()


def _last_written(images: NDArray[Any]) -> tuple[int, int] | None:
    """Which file an array is mapped from, and when it was written; None for one in memory."""
    file = getattr(images, "filename", None)
    if file is None:
        return None
    try:
        found = os.stat(file)
    except OSError:  # what was removed, or another took the name of, is still mapped
        return None
    return found.st_ino, found.st_mtime_ns


def model_input(
    images: Tensor | NDArray[Any], preprocessing: Preprocessing | None, *, device: torch.device
) -> Tensor:
    """A batch as the model takes it: uint8 images fitted and normalised, float ones unchanged.

    >>> grey = Preprocessing(size=(4, 4), mean=(0.5,), std=(0.5,))
    >>> model_input(np.zeros((2, 9, 8, 3), np.uint8), grey, device=torch.device("cpu")).shape
    torch.Size([2, 1, 4, 4])
    """
    if isinstance(images, Tensor):
        check_dense(images)
        if images.is_floating_point():
            return images
    if images.dtype in (np.uint8, torch.uint8):
        wanted = want_preprocessing(preprocessing, "uint8 images")
        if not len(images):
            return torch.zeros(0, *wanted.shape, device=device)
        if isinstance(images, Tensor) and images.shape[1:] == wanted.shape:
            return wanted.normalize(images.to(device))  # ready: it need not leave its device
        source = ArraySource(images, preprocessing=wanted, cache=0)
        return wanted.normalize(source.read(torch.arange(len(source))).to(device))
    floats = channels_first(to_numpy(images))
    return torch.from_numpy(np.ascontiguousarray(floats, dtype=np.float32)).to(device)


def load_arrays(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The images of a .npy or .npz file, and its labels if it has any. Never unpickles."""
    try:
        if path.suffix.lower() == ".npy":
            # Mapped, not read: the set may be larger than the memory.
            return np.load(path, mmap_mode="r", allow_pickle=False), None
        with np.load(path, allow_pickle=False) as file:
            names = [name for name in ("images", "labels") if name in file.files]
            if "images" not in names:
                names = file.files
            if not names or ("images" not in names and len(names) > 1):
                raise AcclimateError(
                    f"expected the arrays 'images' and, if known, 'labels' in {path}, got "
                    f"{', '.join(names) or 'none'}"
                )
            _refuse_large(path, names)
            arrays = {name: file[name] for name in names}
    except AcclimateError:
        raise
    except Exception as error:  # a damaged header goes through zipfile, zlib, tokenize and ast
        if "allow_pickle" in str(error):
            raise AcclimateError(
                f"{path} holds Python objects, or is no numpy file, and is not opened, since "
                "pickled objects can run code; save plain uint8 or float arrays with "
                "numpy.savez(images=...)"
            ) from error
        raise AcclimateError(f"expected a readable numpy file at {path}, got: {error}") from error
    # numpy returns the bytes of members that are no arrays.
    foreign = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if foreign:
        raise AcclimateError(f"expected numpy arrays in {path}, but {foreign[0]} is none")
    images, *labels = arrays.values()
    return images, labels[0] if labels else None


def _refuse_large(path: Path, names: Sequence[str]) -> None:
    """Refuse what would not fit the memory before any of it is unpacked: zeros pack well."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    wanted = {member for name in names for member in (name, f"{name}.npy")}
    size = sum(member.file_size for member in members if member.filename in wanted)
    if size > (most := available_memory()):
        raise AcclimateError(
            f"expected at most {most:,} bytes in {path}, which are free, got {size:,} unpacked; "
            "save the images as .npy, which is read from the disk"
        )


def _chunks(images: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Runs of images, each with the index of its first, small enough to copy."""
    rows = max(1, _CHUNK_BYTES // max(1, images[:1].nbytes))
    for start in range(0, len(images), rows):
        yield start, np.ascontiguousarray(images[start : start + rows])


def _check_values(images: NDArray[Any]) -> None:
    bad: list[int] = []
    low, high = math.inf, -math.inf
    for start, rows in _chunks(images):
        sound = np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
        bad.extend((start + np.flatnonzero(~sound)).tolist())
        low, high = min(low, float(rows.min())), max(high, float(rows.max()))
    if bad:
        first = ", ".join(map(str, bad[:5]))
        raise AcclimateError(
            f"{len(bad)} of {len(images)} images have NaN or infinite pixels (first: {first}); "
            "remove or repair them"
        )
    warn_of_unscaled(low, high)


def warn_of_unscaled(low: float, high: float) -> None:
    """Warn of float images whose least and greatest values are those of unscaled pixels."""
    if low >= 0 and high > _LOOKS_UNSCALED:
        warnings.warn(
            f"float images are used as model input unchanged, but these range from {low:g} to "
            f"{high:g}, as unscaled pixels do; pass uint8 and preprocessing=... to have them "
            "scaled",
            AcclimateWarning,
            stacklevel=2,
        )
