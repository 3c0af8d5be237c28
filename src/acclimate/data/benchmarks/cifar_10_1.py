"""CIFAR-10.1: a new test set for CIFAR-10, collected as the first one was."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from acclimate.data.arrays import ArraySource, load_arrays
from acclimate.data.benchmarks.array_sets import (
    array_source,
    check_count,
    check_images,
    find_file,
    plain_scaling,
)
from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset

__all__ = ["open_cifar10_1"]

# v6, balanced over the classes, is the one its authors recommend.
_COUNTS = {"v6": 2_000, "v4": 2_021}
_FOLDERS = ("", "datasets/", "CIFAR-10.1/datasets/")


def open_cifar10_1(request: Request) -> ArraySource:
    """The images of version v6 or v4."""
    version = request.split or "v6"
    paths = []
    for kind in ("data", "labels"):
        path = _find(request.root, version, kind)
        if path is None:
            request.refuse(f"expected cifar10.1_{version}_{kind}.npy in {request.root}")
        paths.append(path)
    images, labels = (load_arrays(path)[0] for path in paths)
    check_images(images, (32, 32, 3), where=paths[0])
    check_count(request, str(paths[0]), len(images), _COUNTS[version])
    return array_source(
        request, images, np.asarray(labels), class_names=CIFAR10_CLASSES, where=paths[1]
    )


def _find(root: Path, version: str, kind: str) -> Path | None:
    return find_file(root, [f"{folder}cifar10.1_{version}_{kind}.npy" for folder in _FOLDERS])


def _missing(root: Path) -> list[str]:
    return [
        f"cifar10.1_{version}_{kind}.npy"
        for version in _COUNTS
        for kind in ("data", "labels")
        if _find(root, version, kind) is None
    ]


register_dataset(
    Dataset(
        name="cifar10.1",
        title="CIFAR-10.1 (Recht et al., 2018)",
        classes=10,
        images="2,000 (v6) and 2,021 (v4)",
        size="12 MiB",
        get="Get the folder datasets of https://github.com/modestyachts/CIFAR-10.1",
        layout="""
cifar10.1_v6_data.npy, cifar10.1_v6_labels.npy
cifar10.1_v4_data.npy, cifar10.1_v4_labels.npy
""",
        open=open_cifar10_1,
        splits=("v6", "v4"),
        preprocessing=plain_scaling(32),
        missing=_missing,
    )
)
