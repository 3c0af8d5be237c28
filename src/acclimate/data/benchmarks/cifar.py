"""CIFAR-10 (binary, python or .npz), CIFAR-10.1 and CIFAR-10-C."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.arrays import ArraySource, load_arrays
from acclimate.data.benchmarks.array_sets import (
    Arrays,
    ArraySet,
    array_source,
    check_images,
    find_file,
    plain_scaling,
)
from acclimate.data.benchmarks.facts import register
from acclimate.data.benchmarks.registry import SEVERITIES, Request, generated_images
from acclimate.data.shift import DEV, STAND_INS, TEST
from acclimate.errors import AcclimateError

__all__ = ["CIFAR10_CLASSES"]

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_PER_SEVERITY = 10_000  # the test split of CIFAR-10
_RECORD_BYTES = 1 + 3 * 32 * 32  # the label, then three colour planes


def _cifar10_files(split: str) -> list[list[str]]:
    batches = {"test": ["test_batch"], "train": [f"data_batch_{number}" for number in range(1, 6)]}
    folders = (("cifar-10-batches-bin/", ".bin"), ("cifar-10-batches-py/", ""))
    # The folder itself may have been given, too.
    return [
        [place + name + ending for folder, ending in folders for place in (folder, "")]
        for name in batches[split]
    ]


def _read_cifar10(paths: Sequence[Path]) -> Arrays:
    parts = [_read_binary(path) if path.suffix else _read_pickle(path) for path in paths]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return images, labels


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


def _read_pickle(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
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


def _open_cifar10_c(request: Request) -> ArraySource:
    """One corruption at one severity. The file is mapped, and only that severity's rows are read.

    A set made from fewer images is taken, too, if the ``manifest.json`` beside it that
    ``acclimate corrupt`` writes says how many there were (``{"images": 2000}``), or with
    ``incomplete``.
    """
    folder = _folder(request.root)
    path = find_file(folder, [f"{request.shift}.npy"])
    if path is None:
        gone = _missing_cifar10_c(request.root)
        # Frost made with other textures than the published ones goes by another name.
        near = ", ".join(sorted(file.name for file in folder.glob(f"{request.shift}[-_]*.np[yz]")))
        request.refuse(
            f"expected {request.shift}.npy of CIFAR-10-C in {folder}; {len(gone)} of its "
            f"{len(_CIFAR10_C_FILES)} files are missing"
            + (f" ({near} is there, but is something else)" if near else "")
        )
    label_path = find_file(folder, ["labels.npy"])
    if label_path is None:
        request.refuse(f"expected labels.npy of CIFAR-10-C in {folder}")
    images, labels = load_arrays(path)[0], load_arrays(label_path)[0]
    check_images(images, (32, 32, 3), where=path)
    count = _images_per_severity(request, path, len(images))
    # 1 to 5 by the registry's check.
    start = ((request.severity or 1) - 1) * count
    total = len(labels) if labels.ndim else 0
    if total == count * len(SEVERITIES):
        labels = labels[start : start + count]
    elif total != count:
        raise AcclimateError(
            f"expected {count * len(SEVERITIES):,} labels (or {count:,}, for all severities) in "
            f"{label_path}, got {total:,}; images and labels are not of one copy"
        )
    return array_source(
        request,
        images[start : start + count],
        np.asarray(labels),
        class_names=CIFAR10_CLASSES,
        where=label_path,
    )


def _missing_cifar10_c(root: Path) -> list[str]:
    """The files of CIFAR-10-C that are not there."""
    folder = _folder(root)
    return [name for name in _CIFAR10_C_FILES if not (folder / name).is_file()]


def _folder(root: Path) -> Path:
    inner = root / "CIFAR-10-C"
    return inner if inner.is_dir() else root


def _images_per_severity(request: Request, path: Path, total: int) -> int:
    levels, published = len(SEVERITIES), _PER_SEVERITY
    count, rest = divmod(total, levels)
    if rest or not count:
        raise AcclimateError(
            f"expected {levels} severities of {published:,} images each in {path}, got {total:,} "
            f"images, which is no multiple of {levels}; get the file again"
        )
    made = generated_images(path.parent)
    expected = published if made is None else made
    if count not in (published, expected):
        whose = "" if made is None else " (by the manifest.json beside it)"
        request.object_to(
            f"expected {levels} severities of {expected:,} images each{whose} in {path}, got "
            f"{levels} times {count:,}"
        )
    return count


_CIFAR10_C_FILES = ("labels.npy", *(f"{name}.npy" for name in (*TEST, *DEV)))

ArraySet(
    class_names=CIFAR10_CLASSES,
    counts={"test": (10_000,), "train": (50_000,)},
    shapes=((32, 32, 3), (3, 32, 32)),
    files=_cifar10_files,
    read=_read_cifar10,
    npz="cifar10",
    batches=True,
).register("cifar10", preprocessing=plain_scaling(32))
# v6, balanced over the classes, is the one its authors recommend.
ArraySet(
    class_names=CIFAR10_CLASSES,
    counts={"v6": (2_000,), "v4": (2_021,)},
    shapes=((32, 32, 3),),
    files=lambda version: [
        [
            f"{folder}cifar10.1_{version}_{kind}.npy"
            for folder in ("", "datasets/", "CIFAR-10.1/datasets/")
        ]
        for kind in ("data", "labels")
    ],
    read=lambda paths: (load_arrays(paths[0])[0], np.asarray(load_arrays(paths[1])[0])),
).register("cifar10.1", preprocessing=plain_scaling(32))
register(
    "cifar10-c",
    open=_open_cifar10_c,
    shifts=(*TEST, *DEV),
    shift_kind="corruption",
    severities=True,
    dev=DEV,
    stand_ins=STAND_INS,
    preprocessing=plain_scaling(32),
    missing=_missing_cifar10_c,
    check=_open_cifar10_c,
)
