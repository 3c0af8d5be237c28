"""STL-10, in its own classes and in those of CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from acclimate.data.arrays import ArraySource
from acclimate.data.benchmarks.array_sets import (
    Arrays,
    ArraySet,
    array_source,
    plain_scaling,
    sound_labels,
)
from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES
from acclimate.data.benchmarks.registry import Request
from acclimate.errors import AcclimateError

__all__ = ["STL10_AS_CIFAR10", "STL10_CLASSES"]

STL10_CLASSES = (
    "airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck",
)  # fmt: skip
_SYNONYMS = {"car": "automobile"}
STL10_AS_CIFAR10 = tuple(
    CIFAR10_CLASSES.index(name) if name in CIFAR10_CLASSES else -1
    for name in (_SYNONYMS.get(name, name) for name in STL10_CLASSES)
)
"""For each class of STL-10 its index in CIFAR-10; -1 for the monkey, which is not there."""

_IMAGE_BYTES = 3 * 96 * 96


def _files(split: str) -> list[list[str]]:
    kinds = ["X"] if split == "unlabeled" else ["X", "y"]
    return [[f"{folder}{split}_{kind}.bin" for folder in ("", "stl10_binary/")] for kind in kinds]


def _read(paths: Sequence[Path]) -> Arrays:
    """Images 96×96; ``unlabeled`` has no labels."""
    path, *label_paths = paths
    size = path.stat().st_size
    if not size or size % _IMAGE_BYTES:
        raise AcclimateError(
            f"expected images of {_IMAGE_BYTES:,} bytes in {path}, got {size:,} bytes; the file is "
            "cut short, or not of STL-10's binary version"
        )
    # Mapped: the unlabelled part alone has 2.6 GiB. Planes are stored column by column.
    images = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, 3, 96, 96).swapaxes(2, 3)
    listed = path.with_name("class_names.txt")
    if listed.is_file():
        names = tuple(listed.read_text(encoding="utf-8", errors="replace").split())
        if names != STL10_CLASSES:
            raise AcclimateError(
                f"expected the classes {', '.join(STL10_CLASSES)} in {listed}, got "
                f"{', '.join(names)}"
            )
    return images, np.fromfile(label_paths[0], dtype=np.uint8) if label_paths else None


_STL10 = ArraySet(
    class_names=STL10_CLASSES,
    counts={"test": (8_000,), "train": (5_000,), "unlabeled": (100_000,)},
    shapes=((3, 96, 96),),
    files=_files,
    read=_read,
    first=1,
)
_LABELLED = replace(_STL10, optional=("unlabeled",))


def _open_as_cifar10(request: Request) -> ArraySource:
    """The images of classes that CIFAR-10 has too, labelled with its class indices.

    Nine classes are shared. Monkeys (a tenth of the images: 800 of 8,000 in the test split) are
    left out, since no prediction would be right; a model that predicts frog is wrong, since STL-10
    has none. Images keep their indices in STL-10 as names, and are resized to what the model takes,
    32×32 unless the request says otherwise.
    """
    images, labels, where = _LABELLED.load(request)
    assert labels is not None  # the record has no unlabelled split
    own = sound_labels(labels, count=len(images), classes=10, where=where, first=1)
    classes = np.array(STL10_AS_CIFAR10)[own.numpy()]
    kept = np.flatnonzero(classes >= 0)
    if not len(kept):
        raise AcclimateError(f"all {len(images)} images of {where} are monkeys: none is left")
    return array_source(
        request,
        images[kept],
        classes[kept],
        class_names=CIFAR10_CLASSES,
        where=where,
        names=[str(row) for row in kept],
    )


_STL10.register("stl10", preprocessing=plain_scaling(96))
_LABELLED.register(
    "stl10-cifar10",
    open=_open_as_cifar10,
    splits=("test", "train"),
    preprocessing=plain_scaling(32),
)
