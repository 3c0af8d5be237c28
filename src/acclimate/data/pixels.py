"""Arrays of pixels: which axis is which, are the numbers sound, do they have the model's size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError

__all__ = [
    "channels_first",
    "fit_pixels",
    "non_finite",
    "row_chunks",
    "to_numpy",
    "want_preprocessing",
]

_CHUNK_BYTES = 64 * 2**20


def to_numpy(images: Tensor | NDArray[Any]) -> NDArray[Any]:
    """A tensor's numbers as an array on the CPU; arrays are handed through."""
    if not isinstance(images, Tensor):
        return images
    # numpy knows no bfloat16
    images = images.float() if images.dtype == torch.bfloat16 else images
    array: NDArray[Any] = images.detach().cpu().numpy()
    return array


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """View pictures as N×C×H×W, uint8 or float; anything else is refused with what to do.

    >>> channels_first(np.zeros((5, 32, 32, 3), np.uint8)).shape
    (5, 3, 32, 32)
    >>> channels_first(np.zeros((5, 28, 28), np.uint8)).shape
    (5, 1, 28, 28)
    """
    shape = "×".join(map(str, images.shape)) or "a single number"
    if images.dtype == np.uint8:
        images = _bytes_channels_first(images, shape)
    elif images.dtype.kind == "f":
        _check_float_shape(images, shape)
    else:
        raise AcclimateError(
            f"expected images as uint8 (0 to 255) or as float model input, got {images.dtype}; "
            "convert them first, e.g. images.astype('uint8')"
        )
    if images.size == 0:
        raise AcclimateError(f"expected at least one image with pixels, got {shape}")
    return images


def fit_pixels(picture: NDArray[np.uint8], preprocessing: Preprocessing) -> NDArray[np.uint8]:
    """One C×H×W picture in the model's size and channels; untouched if it has them already."""
    if picture.shape == preprocessing.shape:
        return picture
    grey = picture.shape[0] == 1
    return preprocessing.fit(
        Image.fromarray(picture[0] if grey else np.ascontiguousarray(picture.transpose(1, 2, 0)))
    )


def non_finite(images: NDArray[Any]) -> list[int]:
    """The numbers of pictures with NaN or infinite pixels.

    >>> non_finite(np.array([[0.0], [np.nan], [np.inf]]))
    [1, 2]
    """
    if images.dtype.kind != "f":
        return []
    bad: list[int] = []
    for start, rows in row_chunks(images):
        sound = np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
        bad.extend((start + np.flatnonzero(~sound)).tolist())
    return bad


def row_chunks(images: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Runs of pictures, each with the number of its first, small enough to copy."""
    rows = max(1, _CHUNK_BYTES // max(1, images[:1].nbytes))
    for start in range(0, len(images), rows):
        yield start, np.ascontiguousarray(images[start : start + rows])


def want_preprocessing(preprocessing: Preprocessing | None, kind: str) -> Preprocessing:
    """The preprocessing, or the error that says why there has to be one."""
    if preprocessing is None:
        raise AcclimateError(
            f"{kind} must be scaled as the model was trained, and nothing says how; pass "
            "preprocessing=Preprocessing(size=(height, width), mean=..., std=...), or give float "
            "tensors that are model input already"
        )
    return preprocessing


def _bytes_channels_first(images: NDArray[Any], shape: str) -> NDArray[Any]:
    if images.ndim == 3 and images.shape[-1] != 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images
    if images.ndim == 4 and images.shape[-1] in (1, 3):
        return images.transpose(0, 3, 1, 2)
    hint = "; one image is images[None]" if images.ndim == 3 else ""
    raise AcclimateError(
        f"expected uint8 images as N×H×W×3, N×H×W, N×3×H×W or N×1×H×W, got {shape}{hint}"
    )


def _check_float_shape(images: NDArray[Any], shape: str) -> None:
    if images.ndim != 4:
        raise AcclimateError(
            f"expected float images as N×C×H×W, got {shape}; "
            "images[None] makes one image a set, images[:, None] adds the channel to grey ones"
        )
    if images.shape[-1] == 3 and images.shape[1] > 4:
        raise AcclimateError(
            f"expected float images as N×C×H×W, got {shape}, which looks like channels last; "
            "pass images.transpose(0, 3, 1, 2) (a tensor: images.permute(0, 3, 1, 2))"
        )
