"""Images in one array: in memory, or in a .npy or .npz file."""

from __future__ import annotations

import functools
import hashlib
import math
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acclimate.data.base import ImageSource
from acclimate.data.decode import (
    channels_first,
    fit_pixels,
    non_finite,
    row_chunks,
    to_numpy,
    want_preprocessing,
)
from acclimate.data.memory import cache_budget
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = ["ArraySource", "load_arrays", "model_input", "warn_of_unscaled"]

# Normalised pixels stay within a few units; nothing non-negative reaches this unless unscaled.
_LOOKS_UNSCALED = 20.0


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
        if names is not None and len(names) != len(self._images):
            raise AcclimateError(f"expected {len(self._images)} names, got {len(names)}")
        super().__init__(
            names=[str(index) for index in range(len(self._images))] if names is None else names,
            labels=labels,
            class_names=class_names,
            preprocessing=None if is_float else preprocessing,
        )
        self._fitted: _Fitted | None = None
        if self.preprocessing is not None and self._images.shape[1:] != self.preprocessing.shape:
            self._fitted = _Fitted(self._images, self.preprocessing, cache=cache)

    def read(self, indices: Tensor) -> Tensor:
        """The images at these indices, N×C×H×W on the CPU."""
        if self._fitted is not None:
            return torch.from_numpy(self._fitted.read(indices.numpy()))
        chosen = self._images[indices.numpy()]
        wanted = np.float32 if self.preprocessing is None else np.uint8
        return torch.from_numpy(np.ascontiguousarray(chosen, dtype=wanted))

    def fingerprint(self) -> str:
        """A digest of shape, type and every byte (about a second for each gigabyte, once)."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        head = f"{self._images.shape} {self._images.dtype.str}".encode()
        total = hashlib.blake2b(head, digest_size=8)
        for _, rows in row_chunks(self._images):
            total.update(rows.data)
        return total.hexdigest()


class _Fitted:
    """Images of another size than the model's: fitted once, while all would fit in memory."""

    def __init__(
        self, images: NDArray[np.uint8], preprocessing: Preprocessing, *, cache: int | None
    ) -> None:
        self._images, self._preprocessing = images, preprocessing
        self._shape = (len(images), *preprocessing.shape)
        self._cache = None if cache is None else cache_budget(cache)
        self._known = np.zeros(len(images), np.bool_)
        # Memory is taken only as it is filled.
        self._kept = np.empty(self._shape, np.uint8) if self._fits() else None

    def read(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        if self._kept is None:
            return self._fit(indices)
        missing = np.unique(indices[~self._known[indices]])
        if len(missing):
            if not self._fits():
                return self._fit(indices)
            for index in missing:
                self._kept[index] = self._fit_one(index)
            self._known[missing] = True  # last: from now on they are not fitted again
        return self._kept[indices]

    def _fit(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        fitted = np.empty((len(indices), *self._shape[1:]), np.uint8)
        for place, index in enumerate(indices):
            fitted[place] = self._fit_one(index)
        return fitted

    def _fit_one(self, index: np.int64) -> NDArray[np.uint8]:
        return fit_pixels(self._images[index], self._preprocessing)

    def _fits(self) -> bool:
        """Whether all may be kept; checked again as they fill, since others may take memory too."""
        size = math.prod(self._shape)
        if self._cache is not None:
            return size <= self._cache
        taken = size // len(self._known) * int(self._known.sum())
        return size <= cache_budget(None) + taken // 3


def model_input(
    images: Tensor | NDArray[Any], preprocessing: Preprocessing | None, *, device: torch.device
) -> Tensor:
    """A batch as the model takes it: uint8 images fitted and normalised, float ones unchanged.

    >>> grey = Preprocessing(size=(4, 4), mean=(0.5,), std=(0.5,))
    >>> model_input(np.zeros((2, 9, 8, 3), np.uint8), grey, device=torch.device("cpu")).shape
    torch.Size([2, 1, 4, 4])
    """
    if isinstance(images, Tensor) and images.is_floating_point():
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
            arrays = {name: file[name] for name in _wanted_names(path, file.files)}
    except (OSError, ValueError, EOFError, KeyError, AttributeError, TypeError) as error:
        raise _unreadable(path, error) from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, MemoryError) as error:
        raise _unreadable(path, error) from error
    # numpy returns the bytes of members that are no arrays.
    foreign = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if foreign:
        raise AcclimateError(f"expected numpy arrays in {path}, but {foreign[0]} is none")
    images, *labels = arrays.values()
    return images, labels[0] if labels else None


def _wanted_names(path: Path, names: list[str]) -> list[str]:
    if "images" in names:
        return ["images", "labels"] if "labels" in names else ["images"]
    if len(names) == 1:
        return names
    raise AcclimateError(
        f"expected the arrays 'images' and, if known, 'labels' in {path}, got "
        f"{', '.join(names) or 'none'}"
    )


def _unreadable(path: Path, error: Exception) -> AcclimateError:
    if "allow_pickle" in str(error):
        return AcclimateError(
            f"{path} holds Python objects, or is no numpy file, and is not opened, since pickled "
            "objects can run code; save plain uint8 or float arrays with numpy.savez(images=...)"
        )
    return AcclimateError(f"expected a readable numpy file at {path}, got: {error}")


def _check_values(images: NDArray[Any]) -> None:
    bad = non_finite(images)
    if bad:
        first = ", ".join(map(str, bad[:5]))
        raise AcclimateError(
            f"{len(bad)} of {len(images)} images have NaN or infinite pixels (first: {first}); "
            "remove or repair them"
        )
    low = min(float(rows.min()) for _, rows in row_chunks(images))
    high = max(float(rows.max()) for _, rows in row_chunks(images))
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
