"""USPS: handwritten digits from envelopes, 16×16 and grey."""

from __future__ import annotations

import bz2
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
from acclimate.data.benchmarks.digits import DIGITS
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.errors import AcclimateError

__all__ = ["open_usps", "read_libsvm"]

_COUNTS = {"test": 2_007, "train": 7_291}
_TEXTS = {"test": "usps.t", "train": "usps"}
_SIDE = 16


def open_usps(request: Request) -> ArraySource:
    """The digits of a split, 16×16 and grey, ink white on black as in MNIST."""
    split = request.split or "test"
    npz = find_file(request.root, [f"usps-{split}.npz"])
    if npz is not None:
        where = npz
        images, labels = labelled_npz(npz)
    else:
        text = _find(request.root, split)
        if text is None:
            hint = " (usps.h5 is not read: h5py would be needed)" if _has_h5(request.root) else ""
            request.refuse(f"expected {_TEXTS[split]}.bz2 of USPS in {request.root}{hint}")
        where = text
        images, labels = read_libsvm(text)
    check_images(images, (_SIDE, _SIDE), where=where)
    check_count(request, str(where), len(images), _COUNTS[split])
    return array_source(request, images, labels, class_names=DIGITS, where=where)


def read_libsvm(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images and labels of USPS as LIBSVM's page has it, packed (.bz2) or not.

    A line is a label, 1 to 10 for the digits 0 to 9, and ``number:value`` for the pixels 1 to 256.
    Values from -1 to 1 become 0 to 255, rounded. A pixel that is left out is 0, as everywhere in
    that format.
    """
    try:
        content = path.read_bytes()
        content = bz2.decompress(content) if content[:3] == b"BZh" else content
        lines = content.decode("ascii").splitlines()
    except (OSError, ValueError) as error:
        raise AcclimateError(f"cannot read {path}: {error}") from error
    lines = [line for line in lines if line.strip()]
    values = np.zeros((len(lines), _SIDE * _SIDE))
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
                f"expected a label and pixels as number:value, numbers 1 to {_SIDE * _SIDE}, in "
                f"line {row + 1} of {path}, got {line!r:.60}"
            ) from error
    # Not >, since NaN is to be caught, too.
    wrong = np.flatnonzero(~(np.abs(values) <= 1).all(axis=1))
    if len(wrong):
        raise AcclimateError(
            f"expected pixels from -1 to 1 in {path}, got others in {len(wrong)} lines (first: "
            f"{wrong[0] + 1})"
        )
    images = np.rint((values + 1) * 127.5).astype(np.uint8)
    return images.reshape(-1, _SIDE, _SIDE), labels


def _find(root: Path, split: str) -> Path | None:
    return find_file(root, [f"{_TEXTS[split]}.bz2", _TEXTS[split]])


def _has_h5(root: Path) -> bool:
    return (root / "usps.h5").is_file()


def _missing(root: Path) -> list[str]:
    return [
        f"{_TEXTS[split]}.bz2"
        for split in _COUNTS
        if find_file(root, [f"usps-{split}.npz"]) is None and _find(root, split) is None
    ]


register_dataset(
    Dataset(
        name="usps",
        title="USPS digits (Hull, 1994)",
        classes=10,
        images="2,007 test and 7,291 training",
        size="8 MiB",
        get="Get usps.t.bz2 and usps.bz2 from "
        "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps (usps.h5, "
        "another copy in use, is not read)",
        layout="""
usps.t.bz2, usps.bz2 (packed or not)
or usps-test.npz, usps-train.npz (arrays images and labels)
""",
        open=open_usps,
        splits=("test", "train"),
        preprocessing=plain_scaling(_SIDE, channels=1),
        missing=_missing,
    )
)
