"""CIFAR-10 in any of the forms people have it in: binary, python or .npz."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.arrays import ArraySource
from acclimate.data.benchmarks._array_sets import (
    array_source,
    check_count,
    check_pictures,
    find_file,
    labelled_npz,
    plain_scaling,
)
from acclimate.data.benchmarks._cifar_pickle import read_batch
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.errors import AcclimateError

__all__ = ["CIFAR10_CLASSES", "open_cifar10"]

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
    """The pictures of a split, scaled to 0..1 unless the request says how the model was fed."""
    split = request.split or "test"
    where, images, labels = _read(request, split)
    check_count(request, f"the {split} split in {where}", len(images), _COUNTS[split])
    return array_source(request, images, labels, class_names=CIFAR10_CLASSES, where=where)


def _read(request: Request, split: str) -> tuple[Path, NDArray[Any], NDArray[Any]]:
    npz = find_file(request.root, [f"cifar10-{split}.npz"])
    if npz is not None:
        images, labels = labelled_npz(npz)
        check_pictures(images, (32, 32, 3), (3, 32, 32), where=npz)
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
