"""CIFAR-10-C: the test images of CIFAR-10 under 19 corruptions in five severities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.arrays import ArraySource, load_arrays
from acclimate.data.benchmarks.array_sets import (
    array_source,
    check_images,
    find_file,
    plain_scaling,
)
from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES
from acclimate.data.benchmarks.registry import (
    SEVERITIES,
    Dataset,
    Request,
    generated_images,
    register_dataset,
)
from acclimate.data.names import DEV, STAND_INS, TEST
from acclimate.errors import AcclimateError

__all__ = ["missing_parts", "open_cifar10_c"]

_PUBLISHED = 10_000


def open_cifar10_c(request: Request) -> ArraySource:
    """One corruption at one severity. The file is mapped, and only that severity's rows are read.

    A set made from fewer images is taken, too, if the ``manifest.json`` beside it that
    ``acclimate corrupt`` writes says how many there were (``{"images": 2000}``), or with
    ``incomplete``.
    """
    folder = _folder(request.root)
    path = find_file(folder, [f"{request.shift}.npy"])
    if path is None:
        gone = missing_parts(request.root)
        # Frost made with other textures than the published ones goes by another name.
        near = ", ".join(sorted(file.name for file in folder.glob(f"{request.shift}[-_]*.np[yz]")))
        request.refuse(
            f"expected {request.shift}.npy of CIFAR-10-C in {folder}; {len(gone)} of its "
            f"{len(TEST) + len(DEV) + 1} files are missing"
            + (f" ({near} is there, but is something else)" if near else "")
        )
    label_path = find_file(folder, ["labels.npy"])
    if label_path is None:
        request.refuse(f"expected labels.npy of CIFAR-10-C in {folder}")
    images, _ = load_arrays(path)
    labels, _ = load_arrays(label_path)
    check_images(images, (32, 32, 3), where=path)
    count = _images_per_severity(request, path, len(images))
    # 1 to 5 by the registry's check.
    start = ((request.severity or 1) - 1) * count
    return array_source(
        request,
        images[start : start + count],
        _labels_of(labels, start=start, count=count, where=label_path),
        class_names=CIFAR10_CLASSES,
        where=label_path,
    )


def missing_parts(root: Path) -> list[str]:
    """The files of CIFAR-10-C that are not there.

    >>> len(missing_parts(Path("nowhere")))
    20
    """
    folder = _folder(root)
    return [
        name
        for name in ("labels.npy", *(f"{corruption}.npy" for corruption in (*TEST, *DEV)))
        if not (folder / name).is_file()
    ]


def _folder(root: Path) -> Path:
    inner = root / "CIFAR-10-C"
    return inner if inner.is_dir() else root


def _images_per_severity(request: Request, path: Path, total: int) -> int:
    levels = len(SEVERITIES)
    count, rest = divmod(total, levels)
    if rest or not count:
        raise AcclimateError(
            f"expected {levels} severities of {_PUBLISHED:,} images each in {path}, got {total:,} "
            f"images, which is no multiple of {levels}; get the file again"
        )
    made = generated_images(path.parent)
    expected = _PUBLISHED if made is None else made
    if count not in (_PUBLISHED, expected):
        whose = "" if made is None else " (by the manifest.json beside it)"
        request.object_to(
            f"expected {levels} severities of {expected:,} images each{whose} in {path}, got "
            f"{levels} times {count:,}"
        )
    return count


def _labels_of(labels: NDArray[Any], *, start: int, count: int, where: Path) -> NDArray[Any]:
    """The labels of one severity, of a file that holds them once or once for each severity."""
    total = len(labels) if labels.ndim else 0
    if total == count * len(SEVERITIES):
        return np.asarray(labels[start : start + count])
    if total == count:
        return np.asarray(labels)
    raise AcclimateError(
        f"expected {count * len(SEVERITIES):,} labels (or {count:,}, for all severities) in "
        f"{where}, got {total:,}; images and labels are not of one copy"
    )


register_dataset(
    Dataset(
        name="cifar10-c",
        title="CIFAR-10-C (Hendrycks & Dietterich, 2019)",
        classes=10,
        images="10,000 × 19 corruptions × 5 severities = 950,000",
        size="2.7 GiB",
        get="Get CIFAR-10-C.tar from https://zenodo.org/records/2535967 and unpack it",
        layout="""
labels.npy
gaussian_noise.npy, shot_noise.npy, … (19 files, uint8 50,000×32×32×3, severities in order)
""",
        open=open_cifar10_c,
        shifts=(*TEST, *DEV),
        shift_kind="corruption",
        severities=True,
        dev=DEV,
        stand_ins=STAND_INS,
        preprocessing=plain_scaling(32),
        missing=missing_parts,
        check=open_cifar10_c,
    )
)
