"""MNIST, USPS and SVHN in their published files, or as .npz."""

from __future__ import annotations

import bz2
import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.benchmarks.array_sets import Arrays, ArraySet, plain_scaling, sound_labels
from acclimate.errors import AcclimateError

__all__ = ["DIGITS"]

DIGITS = tuple(str(digit) for digit in range(10))
_UNSIGNED_BYTES = 0x08
_USPS_SIDE = 16


def _read_idx(path: Path) -> NDArray[np.uint8]:
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
            f"expected {'×'.join(map(str, shape))} bytes in {path}, as its header says, got "
            f"{len(content) - start:,}; the file is cut short or has been added to"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _mnist_files(split: str) -> list[list[str]]:
    stem = {"test": "t10k", "train": "train"}[split]
    return [
        [
            # Some unpackers make a dot of the second hyphen.
            f"{folder}{stem}-{kind}{sign}idx{axes}-ubyte{end}"
            for folder in ("", "raw/", "MNIST/raw/")
            for sign in "-."
            for end in (".gz", "")
        ]
        for kind, axes in (("images", 3), ("labels", 1))
    ]


def _read_usps(paths: Sequence[Path]) -> Arrays:
    """Images and labels of USPS as LIBSVM's page has it, packed (.bz2) or not.

    A line is a label, 1 to 10 for the digits 0 to 9, and ``number:value`` for the pixels 1 to 256.
    Values from -1 to 1 become 0 to 255, rounded. A pixel that is left out is 0, as everywhere in
    that format.
    """
    (path,) = paths
    try:
        content = path.read_bytes()
        content = bz2.decompress(content) if content[:3] == b"BZh" else content
        lines = content.decode("ascii").splitlines()
    except (OSError, ValueError) as error:
        raise AcclimateError(f"cannot read {path}: {error}") from error
    lines = [line for line in lines if line.strip()]
    values = np.zeros((len(lines), _USPS_SIDE * _USPS_SIDE))
    labels = np.empty(len(lines), np.int64)
    for row, line in enumerate(lines):
        label, *pixels = line.split()
        try:
            labels[row] = int(label) - 1
            for pixel in pixels:
                number, _, value = pixel.partition(":")
                place = int(number)
                if place < 1:  # would count from the end
                    raise IndexError(place)
                values[row, place - 1] = float(value)
        except (ValueError, IndexError, OverflowError) as error:
            raise AcclimateError(
                "expected a label and pixels as number:value, numbers 1 to "
                f"{_USPS_SIDE * _USPS_SIDE}, in line {row + 1} of {path}, got {line!r:.60}"
            ) from error
    # Not >, since NaN is to be caught, too.
    wrong = np.flatnonzero(~(np.abs(values) <= 1).all(axis=1))
    if len(wrong):
        raise AcclimateError(
            f"expected pixels from -1 to 1 in {path}, got others in {len(wrong)} lines (first: "
            f"{wrong[0] + 1})"
        )
    images = np.rint((values + 1) * 127.5).astype(np.uint8)
    return images.reshape(-1, _USPS_SIDE, _USPS_SIDE), labels


def _read_svhn(paths: Sequence[Path]) -> Arrays:
    """Digits 32×32 in colour. The whole file is read (``extra``: 1.5 GiB)."""
    (path,) = paths
    from scipy.io import loadmat  # slow to import

    try:
        content: dict[str, Any] = loadmat(path)
    except Exception as error:  # on broken bytes scipy raises nearly anything
        raise AcclimateError(f"expected a readable MATLAB file at {path}, got: {error}") from error
    missing = [name for name in ("X", "y") if not isinstance(content.get(name), np.ndarray)]
    if missing:
        raise AcclimateError(f"expected the arrays X and y in {path}, got no {missing[0]}")
    stored: NDArray[Any] = content["X"]
    # Height, width, colour, image: the last axis first, and colour before height.
    images = stored.transpose(3, 2, 0, 1) if stored.ndim == 4 else stored
    raw = sound_labels(content["y"], count=len(images), classes=10, where=path, first=1)
    return images, (raw.numpy() + 1) % 10  # the files write 10 for the digit 0


ArraySet(
    class_names=DIGITS,
    counts={"test": (10_000,), "train": (60_000,)},
    shapes=((28, 28),),
    files=_mnist_files,
    read=lambda paths: (_read_idx(paths[0]), _read_idx(paths[1])),
    npz="mnist",
).register("mnist", preprocessing=plain_scaling(28, channels=1))
ArraySet(
    class_names=DIGITS,
    counts={"test": (2_007,), "train": (7_291,)},
    shapes=((_USPS_SIDE, _USPS_SIDE),),
    files=lambda split: [["usps.t.bz2", "usps.t"] if split == "test" else ["usps.bz2", "usps"]],
    read=_read_usps,
    npz="usps",
).register("usps", preprocessing=plain_scaling(_USPS_SIDE, channels=1))
ArraySet(
    class_names=DIGITS,
    counts={"test": (26_032,), "train": (73_257,), "extra": (531_131,)},
    shapes=((3, 32, 32),),
    files=lambda split: [[f"{split}_32x32.mat"]],
    read=_read_svhn,
    optional=("extra",),  # not needed for any published comparison of adaptation
).register("svhn", preprocessing=plain_scaling(32))
