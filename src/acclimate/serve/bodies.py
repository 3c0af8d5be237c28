"""Images from the bodies of requests that anyone may have sent: with limits, and clear refusals."""

from __future__ import annotations

import ast
import base64
import binascii
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from acclimate.data.arrays import model_input
from acclimate.data.decode import (
    TooLargeImageError,
    UnreadableImageError,
    channels_first,
    decode,
    to_numpy,
)
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.reading import parse_json
from acclimate.serve.settings import Settings

__all__ = ["RefusedError", "from_files", "from_json", "from_npy", "from_safetensors"]

_CPU = torch.device("cpu")
_NPY = b"\x93NUMPY"
_LONGEST_HEADER = 4096
_MARGIN = 0.05
"""Interpolation and rounding may leave the range of pixels by this share of it."""
_TYPES = {"|u1": np.uint8, "<f2": np.float16, "<f4": np.float32, "<f8": np.float64}


class RefusedError(AcclimateError):
    """A request that is not answered, and the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def from_files(files: Sequence[bytes], wanted: Preprocessing, limits: Settings) -> Tensor:
    """Model input from image files of any kind (PNG, JPEG, ...)."""
    _check_count(len(files), limits)
    fitted = []
    for index, data in enumerate(files):
        which = f"image {index}: " if len(files) > 1 else ""
        try:
            fitted.append(decode(data, wanted, most_pixels=limits.max_pixels))
        except TooLargeImageError as error:
            raise RefusedError(413, f"{which}{error}") from error
        except UnreadableImageError as error:
            raise RefusedError(
                422, f"{which}{error}; expected an image file (PNG, JPEG, WebP, ...)"
            ) from error
    return wanted.normalize(torch.from_numpy(np.stack(fitted)))


def from_json(body: bytes, wanted: Preprocessing, limits: Settings) -> Tensor:
    """Model input from ``{"image": BASE64}`` or ``{"images": [BASE64, ...]}``."""
    try:
        value = parse_json(body.decode("utf-8"), "the request")
    except (AcclimateError, UnicodeDecodeError) as error:
        words = error if isinstance(error, AcclimateError) else "expected JSON in UTF-8"
        raise RefusedError(422, str(words)) from error
    shape = 'expected {"image": BASE64} or {"images": [BASE64, ...]}'
    if not isinstance(value, dict) or len({"image", "images"} & value.keys()) != 1:
        raise RefusedError(422, shape)
    if unknown := value.keys() - {"image", "images"}:
        raise RefusedError(422, f"{shape}, got also {str(min(unknown))!r:.40}")
    texts = value["images"] if "images" in value else [value["image"]]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RefusedError(422, shape)
    _check_count(len(texts), limits)
    return from_files([_from_base64(text) for text in texts], wanted, limits)


def _from_base64(text: str) -> bytes:
    head, comma, rest = text.partition(",")
    if comma and head.startswith("data:"):  # as browsers make it
        text = rest
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RefusedError(422, f"expected an image file in base64: {error}") from error


def from_npy(body: bytes, wanted: Preprocessing, limits: Settings) -> Tensor:
    """Model input from the bytes of a .npy file: uint8 images, or floats as the model takes them.

    Nothing is unpickled, and nothing is allocated that the body does not hold.
    """
    return _from_array(_npy(body), wanted, limits)


def _npy(body: bytes) -> NDArray[Any]:
    try:
        if not body.startswith(_NPY) or len(body) < 12:
            raise ValueError("it does not begin as one")
        long = body[6] > 1
        length = struct.unpack_from("<I" if long else "<H", body, 8)[0]
        start = (12 if long else 10) + length
        if length > _LONGEST_HEADER or start > len(body):
            raise ValueError("its header is cut or too long")
        header = ast.literal_eval(body[start - length : start].decode("latin1").strip())
        kind, shape = header["descr"], header["shape"]
        if kind not in _TYPES:
            raise ValueError(
                f"its type is {str(kind)!r:.20}; expected uint8, float16, float32 or float64"
            )
        if not all(type(size) is int and 0 <= size < 2**31 for size in shape) or len(shape) > 4:
            raise ValueError(f"its shape is {shape!s:.60}")
        dtype = np.dtype(_TYPES[kind])
        if math.prod(shape) * dtype.itemsize != len(body) - start:
            raise ValueError(
                f"its shape {tuple(shape)} and its {len(body) - start:,} bytes do not agree"
            )
        array: NDArray[Any] = np.frombuffer(body, dtype, offset=start)
        return array.reshape(shape, order="F" if header["fortran_order"] else "C")
    except (
        *(ValueError, SyntaxError, KeyError, TypeError, IndexError, struct.error),
        *(MemoryError, RecursionError),
    ) as error:
        raise RefusedError(422, f"expected a .npy file: {error}") from error


def from_safetensors(body: bytes, wanted: Preprocessing, limits: Settings) -> Tensor:
    """Model input from a safetensors file with one tensor, or with one called ``images``."""
    try:
        tensors = safetensors.torch.load(body)
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise RefusedError(422, f"expected a safetensors file: {error}") from error
    if "images" not in tensors and len(tensors) != 1:
        raise RefusedError(
            422, f"expected one tensor, or one called 'images', got {len(tensors)} of other names"
        )
    tensor = tensors.get("images", next(iter(tensors.values())))
    if tensor.dtype not in (torch.uint8, torch.float16, torch.bfloat16, torch.float32):
        raise RefusedError(
            422, f"expected uint8 or float images, got {str(tensor.dtype).removeprefix('torch.')}"
        )
    return _from_array(to_numpy(tensor), wanted, limits)


def _from_array(images: NDArray[Any], wanted: Preprocessing, limits: Settings) -> Tensor:
    if images.ndim == 3 and (images.dtype != np.uint8 or images.shape[-1] == 3):
        images = images[None]  # one image
    try:
        # What is too many or too large is refused before it is turned to the model's size.
        seen = channels_first(images)
    except AcclimateError as error:
        raise RefusedError(422, str(error)) from error
    _check_count(len(seen), limits)
    if (pixels := seen.shape[-1] * seen.shape[-2]) > limits.max_pixels:
        raise RefusedError(
            413,
            f"too large ({seen.shape[-1]:,}×{seen.shape[-2]:,} pixels; expected at most "
            f"{limits.max_pixels:,} in all, got {pixels:,})",
        )
    if seen.dtype != np.uint8:
        if seen.shape[1:] != wanted.shape:
            raise RefusedError(
                422,
                "expected float images as the model takes them, "
                f"N×{'×'.join(map(str, wanted.shape))}, got {'×'.join(map(str, seen.shape))}; "
                "uint8 images are resized",
            )
        floats = np.ascontiguousarray(seen, dtype=np.float32)
        if not np.isfinite(floats).all():
            raise RefusedError(422, "expected finite values, got NaN or infinity")
        _check_range(floats, wanted)
        return torch.from_numpy(floats.copy() if not floats.flags.writeable else floats)
    return model_input(np.array(seen), wanted, device=_CPU)


def _check_range(images: NDArray[np.float32], wanted: Preprocessing) -> None:
    """Refuse what no image gives: such values could move a learner further than any image can."""
    for channel, (mean, std) in enumerate(zip(wanted.mean, wanted.std, strict=True)):
        low, high = (0 - mean) / std, (1 - mean) / std
        margin = _MARGIN * (high - low)
        least, most = float(images[:, channel].min()), float(images[:, channel].max())
        if least < low - margin or most > high + margin:
            raise RefusedError(
                422,
                f"expected values from {low:.3g} to {high:.3g} in channel {channel}, as (pixel / "
                f"255 - {mean:g}) / {std:g} has them, got {least:.3g} to {most:.3g}",
            )


def _check_count(count: int, limits: Settings) -> None:
    if not count:
        raise RefusedError(422, "expected at least one image, got none")
    if count > limits.max_images:
        raise RefusedError(
            413, f"expected at most {limits.max_images} images in a request, got {count}"
        )
