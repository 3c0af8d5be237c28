"""CIFAR-10 in any of the forms people have it in: binary, python or .npz."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.arrays import ArraySource
from acclimate.data.benchmarks.array_sets import (
    array_source,
    check_count,
    check_images,
    find_file,
    labelled_npz,
    plain_scaling,
)
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.errors import AcclimateError

__all__ = ["CIFAR10_CLASSES", "open_cifar10", "read_batch"]


def read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images N×3×32×32 and labels of one batch.

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


CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_COUNTS = {"test": 10_000, "train": 50_000}
_BATCHES = {
    "test": ("test_batch",),
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
}
_RECORD_BYTES = 1 + 3 * 32 * 32  # the label, then three colour planes

_Reader = Callable[[Path], tuple[NDArray[Any], NDArray[Any]]]


def open_cifar10(request: Request) -> ArraySource:
    """The images of a split, scaled to 0..1 unless the request says how the model was fed."""
    split = request.split or "test"
    where, images, labels = _read(request, split)
    check_count(request, f"the {split} split in {where}", len(images), _COUNTS[split])
    return array_source(request, images, labels, class_names=CIFAR10_CLASSES, where=where)


def _read(request: Request, split: str) -> tuple[Path, NDArray[Any], NDArray[Any]]:
    npz = find_file(request.root, [f"cifar10-{split}.npz"])
    if npz is not None:
        images, labels = labelled_npz(npz)
        check_images(images, (32, 32, 3), (3, 32, 32), where=npz)
        return npz, images, labels
    names = _BATCHES[split]
    for folder, ending, reader in _forms(request.root):
        gone = _lacking(folder, ending, names)
        if len(gone) < len(names):
            if gone:
                request.object_to(f"{', '.join(gone)} of CIFAR-10 not found in {folder}")
            parts = [reader(folder / name) for name in _files(ending, names) if name not in gone]
            images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            return folder, images, labels
    return request.refuse(f"expected the {split} split of CIFAR-10 in {request.root}, found none")


def _forms(root: Path) -> list[tuple[Path, str, _Reader]]:
    forms: list[tuple[str, str, _Reader]] = [
        ("cifar-10-batches-bin", ".bin", _read_binary),
        ("cifar-10-batches-py", "", read_batch),
    ]
    # The folder itself may have been given, too.
    return [
        (folder, ending, reader) for name, ending, reader in forms for folder in (root / name, root)
    ]


def _read_binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    try:
        content = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise AcclimateError(f"cannot read {path}: {error.strerror}") from error
    if not len(content) or len(content) % _RECORD_BYTES:
        raise AcclimateError(
            f"expected records of {_RECORD_BYTES} bytes in {path}, got {len(content):,} bytes; "
            "the file is cut short, or not of CIFAR-10's binary version"
        )
    records = content.reshape(-1, _RECORD_BYTES)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _missing(root: Path) -> list[str]:
    missing = []
    for split, names in _BATCHES.items():
        if find_file(root, [f"cifar10-{split}.npz"]) is not None:
            continue
        # Of the forms it may come in, the one that is nearest to being whole.
        lacking = [_lacking(folder, ending, names) for folder, ending, _ in _forms(root)]
        missing += sorted(lacking, key=len)[0]
    return missing


def _lacking(folder: Path, ending: str, names: tuple[str, ...]) -> list[str]:
    return [name for name in _files(ending, names) if not (folder / name).is_file()]


def _files(ending: str, names: tuple[str, ...]) -> list[str]:
    return [name + ending for name in names]


register_dataset(
    Dataset(
        name="cifar10",
        title="CIFAR-10 (Krizhevsky, 2009)",
        classes=10,
        images="10,000 test and 50,000 training",
        size="163 MiB",
        get="Get the binary or the python version from https://www.cs.toronto.edu/~kriz/cifar.html "
        "and unpack it",
        layout="""
cifar-10-batches-bin/test_batch.bin, data_batch_1.bin … data_batch_5.bin
or cifar-10-batches-py/test_batch, data_batch_1 … data_batch_5
or cifar10-test.npz, cifar10-train.npz (arrays images and labels)
""",
        open=open_cifar10,
        splits=("test", "train"),
        preprocessing=plain_scaling(32),
        missing=_missing,
    )
)
