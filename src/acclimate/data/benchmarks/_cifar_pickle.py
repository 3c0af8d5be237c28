"""The pickles CIFAR-10's "python version" comes in, read without running anything in them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.errors import AcclimateError

__all__ = ["read_batch"]


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures N×3×32×32 and labels of one batch.

    A pickle may name any function and have it called. Here it may name the few that numpy arrays
    are stored with, and even those are not called: stand-ins take their place, which keep the
    bytes of uint8 arrays and refuse all else.

    Raises:
        AcclimateError: for a file that is no such pickle, or that names anything else.
    """
    try:
        with path.open("rb") as file:
            batch = _Unpickler(file, encoding="bytes").load()
    except AcclimateError as error:
        raise AcclimateError(f"{path} is not opened: {error}") from error
    except Exception as error:  # on broken bytes the unpickler raises nearly anything
        raise AcclimateError(f"expected a batch of CIFAR-10 in {path}, got: {error}") from error
    if not isinstance(batch, dict):
        raise AcclimateError(f"expected a dictionary in {path}, got a {type(batch).__name__}")
    entries = {_text(key): value for key, value in batch.items()}
    data, labels = entries.get("data"), entries.get("labels")
    if not isinstance(data, _Array) or data.values is None or data.values.shape[1:] != (3072,):
        raise AcclimateError(f"expected uint8 'data' of N×3072 in {path}")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise AcclimateError(f"expected a list of numbers as 'labels' in {path}")
    return data.values.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


class _Dtype:
    """Stands for numpy.dtype: remembers only which one it is."""

    def __init__(self, code: object, *_: object) -> None:
        if _text(code) not in ("u1", "|u1"):
            raise AcclimateError(f"it holds an array of type {code!r}, expected bytes (u1)")

    def __setstate__(self, state: object) -> None:
        """Byte order and the like, of no meaning for single bytes."""


class _Array:
    """Stands for numpy.ndarray: an empty one, then filled by what BUILD brings."""

    values: NDArray[np.uint8] | None = None

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise AcclimateError("it holds an array of something else than bytes")
        values = np.frombuffer(content, np.uint8)
        self.values = values.reshape(shape[::-1]).T if fortran else values.reshape(shape)


class _Bytes(bytes):
    """Stands for the function by which Python 3 writes bytes into old pickles."""

    # A class with this method, since a pickle may set attributes of what has none, functions too.
    def __setstate__(self, state: object) -> None:
        raise AcclimateError("it changes what it should only call")

    def __new__(cls, text: str, encoding: str) -> _Bytes:
        if _text(encoding) != "latin1":
            raise AcclimateError(f"it asks for the encoding {encoding!r}")
        return super().__new__(cls, text.encode("latin1"))


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Bytes,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise AcclimateError(
                f"it asks for {module}.{name}, which no copy of CIFAR-10 needs and which could "
                "run code; get the binary version from the official page instead"
            )
        return _STAND_INS[module, name]


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
