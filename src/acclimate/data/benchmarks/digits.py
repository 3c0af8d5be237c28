"""MNIST in its published idx files or as .npz."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

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

__all__ = ["DIGITS", "open_mnist", "read_idx"]

DIGITS = tuple(str(digit) for digit in range(10))
_COUNTS = {"test": 10_000, "train": 60_000}
_STEMS = {"test": "t10k", "train": "train"}
_FOLDERS = ("", "raw/", "MNIST/raw/")
_UNSIGNED_BYTES = 0x08


def open_mnist(request: Request) -> ArraySource:
    """The digits of a split, 28×28 and grey."""
    split = request.split or "test"
    npz = find_file(request.root, [f"mnist-{split}.npz"])
    if npz is not None:
        where = npz
        images, labels = labelled_npz(npz)
    else:
        where = _want(request, split, "images", 3)
        images, labels = read_idx(where), read_idx(_want(request, split, "labels", 1))
    check_images(images, (28, 28), where=where)
    check_count(request, str(where), len(images), _COUNTS[split])
    return array_source(request, images, labels, class_names=DIGITS, where=where)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an idx file of bytes, packed (.gz) or not.

    The format: two zero bytes, the type (8 for unsigned bytes), the number of axes, the length of
    each axis as a big-endian 32-bit number, then the content.
    """
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, zlib.error) as error:
        raise AcclimateError(f"cannot read {path}: {error}") from error
    axes = content[3] if len(content) >= 4 else 0
    start = 4 + 4 * axes
    if content[:3] != bytes((0, 0, _UNSIGNED_BYTES)) or not axes or len(content) < start:
        raise AcclimateError(f"expected an idx file of unsigned bytes at {path}, got another kind")
    shape = [int(length) for length in np.frombuffer(content, ">u4", axes, 4)]
    if len(content) - start != math.prod(shape):
        raise AcclimateError(
            f"expected {'×'.join(map(str, shape))} bytes in {path}, as it says itself, got "
            f"{len(content) - start:,}; the file is cut short or has been added to"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _want(request: Request, split: str, kind: str, axes: int) -> Path:
    path = _find(request.root, split, kind, axes)
    if path is None:
        name = f"{_STEMS[split]}-{kind}-idx{axes}-ubyte"
        request.refuse(f"expected {name}.gz (or unpacked) of MNIST in {request.root}")
    return path


def _find(root: Path, split: str, kind: str, axes: int) -> Path | None:
    stem = f"{_STEMS[split]}-{kind}"
    # Some unpackers make a dot of the second hyphen.
    names = [f"{stem}{sign}idx{axes}-ubyte{end}" for sign in "-." for end in ("", ".gz")]
    return find_file(root, [folder + name for folder in _FOLDERS for name in names])


def _missing(root: Path) -> list[str]:
    parts: list[tuple[str, int]] = [("images", 3), ("labels", 1)]
    return [
        f"{_STEMS[split]}-{kind}-idx{axes}-ubyte.gz"
        for split in _COUNTS
        if find_file(root, [f"mnist-{split}.npz"]) is None
        for kind, axes in parts
        if _find(root, split, kind, axes) is None
    ]


register_dataset(
    Dataset(
        name="mnist",
        title="MNIST (LeCun et al., 1998)",
        classes=10,
        images="10,000 test and 60,000 training",
        size="11 MiB",
        get="Get the four .gz files of http://yann.lecun.com/exdb/mnist/ (or of a mirror of it)",
        layout="""
t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz (packed or not)
train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz
or mnist-test.npz, mnist-train.npz (arrays images and labels)
""",
        open=open_mnist,
        splits=("test", "train"),
        preprocessing=plain_scaling(28, channels=1),
        missing=_missing,
    )
)
