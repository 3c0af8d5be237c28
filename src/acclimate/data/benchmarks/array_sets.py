"""What the data sets that come as arrays have in common: finding files, counting, labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acclimate.data.arrays import ArraySource, load_arrays
from acclimate.data.base import ImageSource, digest
from acclimate.data.benchmarks.registry import Request
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError

__all__ = [
    "StandardizedSource",
    "array_source",
    "check_count",
    "check_images",
    "find_file",
    "labelled_npz",
    "plain_scaling",
    "sound_labels",
    "standardize",
]


def plain_scaling(side: int, *, channels: int = 3) -> Preprocessing:
    """Pixels scaled to 0..1 and nothing else, at the data set's own size.

    Models of small images are not fed alike: many take 0..1, as those of RobustBench do, others
    are normalised by the mean and deviation of their training set. So the data set claims nothing
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
    shape = "×".join(map(str, images.shape)) or "a single number"
    raise AcclimateError(
        f"expected uint8 images {wanted} in {where}, got {images.dtype} {shape}; is it a file of "
        "another data set?"
    )


def sound_labels(
    labels: NDArray[Any], *, count: int, classes: int, where: object, first: int = 0
) -> Tensor:
    """Labels as int64 from 0, once there is one for each image and each is a class.

    ``first`` is how the file writes the first class; messages keep to the file's numbers.

    >>> sound_labels(np.array([[2], [1]], np.uint8), count=2, classes=2, where="y.bin", first=1)
    tensor([1, 0])
    """
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim != 1 or len(flat) != count:
        shape = "×".join(map(str, labels.shape)) or "a single number"
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


def labelled_npz(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """``images`` and ``labels`` of a .npz file; a benchmark has both."""
    images, labels = load_arrays(path)
    if labels is None:
        raise AcclimateError(f"expected the arrays 'images' and 'labels' in {path}, got no labels")
    return images, labels


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


def standardize(images: Tensor) -> Tensor:
    """Centre and scale each channel of each uint8 image by its own mean and deviation.

    A channel of one value only is centred and not scaled.

    >>> standardize(torch.tensor([[[[0, 255]]], [[[7, 7]]]], dtype=torch.uint8)).flatten()
    tensor([-0.7071,  0.7071,  0.0000,  0.0000])
    """
    pixels = images.to(torch.float32) / 255
    std, mean = torch.std_mean(pixels, dim=(2, 3), keepdim=True)
    return (pixels - mean) / torch.where(std == 0, 1.0, std)


class StandardizedSource(ImageSource):
    """Another source's uint8 images, handed out as model input."""

    def __init__(self, inner: ImageSource) -> None:
        self._inner = inner
        super().__init__(
            names=inner.names,
            labels=inner.labels,
            class_names=inner.class_names,
            preprocessing=None,
            skipped=inner.skipped,
            scoring=inner.scoring,
        )

    def read(self, indices: Tensor) -> Tensor:
        """The images at these indices, float32 N×C×H×W."""
        return standardize(self._inner.read(indices))

    def fingerprint(self) -> str:
        """The other source's digest, marked: the same images are another input here."""
        return digest([self._inner.fingerprint().encode(), b"standardized"])
