"""STL-10, as it is and with its labels in CIFAR-10's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.arrays import ArraySource
from acclimate.data.benchmarks.array_sets import (
    array_source,
    check_count,
    find_file,
    plain_scaling,
    sound_labels,
)
from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.errors import AcclimateError

__all__ = ["STL10_AS_CIFAR10", "STL10_CLASSES", "open_stl10", "open_stl10_as_cifar10"]

STL10_CLASSES = (
    "airplane",
    "bird",
    "car",
    "cat",
    "deer",
    "dog",
    "horse",
    "monkey",
    "ship",
    "truck",
)
_SYNONYMS = {"car": "automobile"}
STL10_AS_CIFAR10 = tuple(
    CIFAR10_CLASSES.index(name) if name in CIFAR10_CLASSES else -1
    for name in (_SYNONYMS.get(name, name) for name in STL10_CLASSES)
)
"""For each class of STL-10 its number in CIFAR-10; -1 for the monkey, which is not there."""

_COUNTS = {"test": 8_000, "train": 5_000, "unlabeled": 100_000}
_IMAGE_BYTES = 3 * 96 * 96
_FOLDERS = ("", "stl10_binary/")


def open_stl10(request: Request) -> ArraySource:
    """The images of a split, 96×96; ``unlabeled`` has no labels."""
    images, labels, where = _read(request)
    return array_source(request, images, labels, class_names=STL10_CLASSES, where=where, first=1)


def open_stl10_as_cifar10(request: Request) -> ArraySource:
    """The images a model of CIFAR-10 can name, with the numbers that it has for them.

    Nine classes are shared. Monkeys (a tenth of the images: 800 of 8,000 in the test split) are
    left out, since no answer would be right; a model that answers frog is wrong, since STL-10 has
    none. Images keep their numbers in STL-10 as names, and are resized to what the model takes,
    32×32 unless the request says otherwise.
    """
    images, labels, where = _read(request)
    if labels is None:  # the record has no unlabelled split
        raise AcclimateError(f"expected labels beside {where}")
    own = sound_labels(labels, count=len(images), classes=10, where=where, first=1)
    numbers = np.array(STL10_AS_CIFAR10)[own.numpy()]
    kept = np.flatnonzero(numbers >= 0)
    if not len(kept):
        raise AcclimateError(f"all {len(images)} images of {where} are monkeys: none is left")
    return array_source(
        request,
        images[kept],
        numbers[kept],
        class_names=CIFAR10_CLASSES,
        where=where,
        names=[str(row) for row in kept],
    )


def _read(request: Request) -> tuple[NDArray[np.uint8], NDArray[Any] | None, Path]:
    split = request.split or "test"
    path = _find(request.root, f"{split}_X.bin")
    if path is None:
        request.refuse(f"expected {split}_X.bin of STL-10 in {request.root}")
    size = path.stat().st_size
    if not size or size % _IMAGE_BYTES:
        raise AcclimateError(
            f"expected images of {_IMAGE_BYTES:,} bytes in {path}, got {size:,} bytes; the file is "
            "cut short, or not of STL-10's binary version"
        )
    # Mapped: the unlabelled part alone has 2.6 GiB. Planes are stored column by column.
    images = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, 3, 96, 96).swapaxes(2, 3)
    check_count(request, str(path), len(images), _COUNTS[split])
    _check_class_names(path.with_name("class_names.txt"))
    if split == "unlabeled":
        return images, None, path
    label_path = _find(request.root, f"{split}_y.bin")
    if label_path is None:
        request.refuse(f"expected {split}_y.bin of STL-10 in {request.root}")
    return images, np.fromfile(label_path, dtype=np.uint8), label_path


def _check_class_names(path: Path) -> None:
    if not path.is_file():
        return
    names = tuple(path.read_text(encoding="utf-8", errors="replace").split())
    if names != STL10_CLASSES:
        raise AcclimateError(
            f"expected the classes {', '.join(STL10_CLASSES)} in {path}, got {', '.join(names)}"
        )


def _find(root: Path, name: str) -> Path | None:
    return find_file(root, [folder + name for folder in _FOLDERS])


def _missing(root: Path) -> list[str]:
    names = ("test_X.bin", "test_y.bin", "train_X.bin", "train_y.bin", "unlabeled_X.bin")
    return [name for name in names if _find(root, name) is None]


def _missing_labelled(root: Path) -> list[str]:
    return [name for name in _missing(root) if not name.startswith("unlabeled")]


_GET = "Get stl10_binary.tar.gz from https://cs.stanford.edu/~acoates/stl10/ and unpack it"
_LAYOUT = """
stl10_binary/test_X.bin, test_y.bin, train_X.bin, train_y.bin, class_names.txt
"""

register_dataset(
    Dataset(
        name="stl10",
        title="STL-10 (Coates et al., 2011)",
        classes=10,
        images="8,000 test, 5,000 training and 100,000 unlabelled",
        size="2.5 GiB",
        get=_GET,
        layout=_LAYOUT + "stl10_binary/unlabeled_X.bin\n",
        open=open_stl10,
        splits=("test", "train", "unlabeled"),
        preprocessing=plain_scaling(96),
        missing=_missing,
    )
)
register_dataset(
    Dataset(
        name="stl10-cifar10",
        title="STL-10 without monkeys, in the classes of CIFAR-10",
        classes=10,
        images="7,200 test (of 8,000; 800 monkeys left out) and 4,500 training (of 5,000)",
        size="2.5 GiB",
        get=_GET,
        layout=_LAYOUT,
        open=open_stl10_as_cifar10,
        splits=("test", "train"),
        preprocessing=plain_scaling(32),
        missing=_missing_labelled,
    )
)
