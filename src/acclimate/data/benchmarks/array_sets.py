"""Data sets that come as arrays: how their files are found, read and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acclimate.data.arrays import ArraySource, load_arrays
from acclimate.data.benchmarks.facts import register
from acclimate.data.benchmarks.registry import Request
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError

__all__ = [
    "ArraySet",
    "Arrays",
    "array_source",
    "check_count",
    "check_images",
    "find_file",
    "plain_scaling",
    "sound_labels",
]

Arrays: TypeAlias = tuple[NDArray[Any], NDArray[Any] | None]
"""Images, and their labels where there are any."""


@dataclass(frozen=True, kw_only=True)
class ArraySet:
    """What the splits of a data set consist of: one row of a table for each data set."""

    class_names: tuple[str, ...]  # in the order of the labels
    counts: Mapping[str, tuple[int, ...]]  # of images in each split; several where copies differ
    shapes: tuple[tuple[int, ...], ...]  # of one image, as the files have it
    # For a split, its files, each as the names it may have below the root, the published one first.
    files: Callable[[str], Sequence[Sequence[str]]]
    read: Callable[[Sequence[Path]], Arrays]
    npz: str | None = None  # {npz}-{split}.npz, images and labels, is taken instead of the files
    first: int = 0  # how the files write the first class
    optional: tuple[str, ...] = ()  # splits that are not missed where they are not there
    batches: bool = False  # each file is a part of the images, and can do without the others

    def register(self, name: str, **how: Any) -> None:
        """Make it known as a data set; ``open`` where the images are not taken as they come."""
        own = {"open": self.open, "splits": tuple(self.counts), "missing": self.missing}
        register(name, **{**own, **how})

    def open(self, request: Request) -> ArraySource:
        """The images of the split that is asked for, labels checked."""
        images, labels, where = self.load(request)
        return array_source(
            request, images, labels, class_names=self.class_names, where=where, first=self.first
        )

    def load(self, request: Request) -> tuple[NDArray[Any], NDArray[Any] | None, Path]:
        """Images, counted, and labels of a split, and the file the labels are in."""
        split = request.split or next(iter(self.counts))
        npz = self.find_npz(request.root, split)
        if npz is not None:
            paths, (images, labels) = [npz], load_arrays(npz)
            if labels is None:
                raise AcclimateError(
                    f"expected the arrays 'images' and 'labels' in {npz}, got no labels"
                )
        else:
            found = {_shown(names): find_file(request.root, names) for names in self.files(split)}
            paths = [path for path in found.values() if path is not None]
            gone = [name for name, path in found.items() if path is None]
            if gone and not (self.batches and paths):
                request.refuse(f"expected {gone[0]} of {request.dataset.name} in {request.root}")
            if gone:
                what = f"{', '.join(gone)} of {request.dataset.name}"
                request.object_to(f"{what} not found in {request.root}")
            images, labels = self.read(paths)
        check_images(images, *self.shapes, where=paths[0])
        check_count(request, str(paths[0]), len(images), *self.counts[split])
        return images, labels, paths[-1]

    def missing(self, root: Path) -> list[str]:
        """The files that are not there."""
        return [
            _shown(names)
            for split in self.counts
            if split not in self.optional and self.find_npz(root, split) is None
            for names in self.files(split)
            if find_file(root, names) is None
        ]

    def find_npz(self, root: Path, split: str) -> Path | None:
        """The copy of a split in one file, if it is there."""
        return None if self.npz is None else find_file(root, [f"{self.npz}-{split}.npz"])


def _shown(names: Sequence[str]) -> str:
    return names[0].rpartition("/")[2]


def plain_scaling(side: int, *, channels: int = 3) -> Preprocessing:
    """Pixels scaled to 0..1 and nothing else, at the data set's own size.

    Models of small images differ: many take 0..1, as those of RobustBench do, others are
    normalised by the mean and deviation of their training set. So the data set claims nothing
    about colour; the model's own record, passed as ``preprocessing``, wins wherever there is one.

    >>> print(plain_scaling(28, channels=1).describe())
    28×28, mean (0.0,), std (1.0,)
    """
    return Preprocessing(size=(side, side), mean=(0.0,) * channels, std=(1.0,) * channels)


def find_file(root: Path, names: Iterable[str]) -> Path | None:
    """The first of these files, relative to ``root``, that is there."""
    return next((root / name for name in names if (root / name).is_file()), None)


def check_count(request: Request, what: str, got: int, *expected: int) -> None:
    """Refuse nothing at all; object to another count than a published one."""
    if not got:
        request.refuse(f"expected {_either(expected)} images in {what}, got none")
    if got not in expected:
        request.object_to(f"expected {_either(expected)} images in {what}, got {got:,}")


def check_images(images: NDArray[Any], *shapes: tuple[int, ...], where: object) -> None:
    """Refuse arrays that are not uint8 images of one of these shapes."""
    if images.dtype == np.uint8 and images.ndim > 0 and images.shape[1:] in shapes:
        return
    wanted = " or ".join("×".join(("N", *map(str, shape))) for shape in shapes)
    shape = "×".join(map(str, images.shape)) or "a scalar"
    raise AcclimateError(
        f"expected uint8 images {wanted} in {where}, got {images.dtype} {shape}; is it a file of "
        "another data set?"
    )


def sound_labels(
    labels: NDArray[Any], *, count: int, classes: int, where: object, first: int = 0
) -> Tensor:
    """Labels as int64 from 0, once there is one for each image and each is a class.

    ``first`` is how the file writes the first class; messages keep to the file's own labels.
    """
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim != 1 or len(flat) != count:
        shape = "×".join(map(str, labels.shape)) or "a scalar"
        raise AcclimateError(
            f"expected one label for each of {count:,} images in {where}, got {shape}; images and "
            "labels are not of one copy"
        )
    if flat.dtype.kind not in "iu":
        raise AcclimateError(f"expected whole numbers as labels in {where}, got {flat.dtype}")
    wrong = np.flatnonzero((flat < first) | (flat >= first + classes))
    if len(wrong):
        values = ", ".join(map(str, np.unique(flat[wrong])[:5]))
        raise AcclimateError(
            f"expected labels {first} to {first + classes - 1} in {where}, got {len(wrong)} "
            f"others: {values} (first for image {wrong[0]}); the file is damaged, or of "
            "another data set"
        )
    return torch.from_numpy(flat.astype(np.int64) - first)


def array_source(
    request: Request,
    images: NDArray[Any],
    labels: NDArray[Any] | None,
    *,
    class_names: Sequence[str],
    where: object,
    names: Sequence[str] | None = None,
    first: int = 0,
) -> ArraySource:
    """Images and checked labels, to be read as the request says."""
    known = None
    if labels is not None:
        known = sound_labels(
            labels, count=len(images), classes=len(class_names), where=where, first=first
        )
    return ArraySource(
        images,
        preprocessing=request.fitting,
        labels=known,
        names=names,
        class_names=tuple(class_names),
        cache=request.cache,
    )


def _either(counts: Sequence[int]) -> str:
    return " or ".join(f"{count:,}" for count in counts)
