"""SVHN: house numbers, cut to single digits (format 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.data.arrays import ArraySource
from acclimate.data.benchmarks.array_sets import (
    array_source,
    check_count,
    check_images,
    find_file,
    plain_scaling,
    sound_labels,
)
from acclimate.data.benchmarks.digits import DIGITS
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.errors import AcclimateError

__all__ = ["open_svhn"]

_COUNTS = {"test": 26_032, "train": 73_257, "extra": 531_131}


def open_svhn(request: Request) -> ArraySource:
    """The digits of a split, 32×32 in colour. The whole file is read (``extra``: 1.5 GiB)."""
    split = request.split or "test"
    path = find_file(request.root, [f"{split}_32x32.mat"])
    if path is None:
        request.refuse(f"expected {split}_32x32.mat of SVHN in {request.root}")
    content = _load(path)
    missing = [name for name in ("X", "y") if not isinstance(content.get(name), np.ndarray)]
    if missing:
        raise AcclimateError(f"expected the arrays X and y in {path}, got no {missing[0]}")
    stored: NDArray[Any] = content["X"]
    # Height, width, colour, number: the last axis first, and colour before height.
    images = stored.transpose(3, 2, 0, 1) if stored.ndim == 4 else stored
    check_images(images, (3, 32, 32), where=path)
    check_count(request, str(path), len(images), _COUNTS[split])
    raw = sound_labels(content["y"], count=len(images), classes=10, where=path, first=1)
    labels = (raw.numpy() + 1) % 10  # the files write 10 for the digit 0
    return array_source(request, images, labels, class_names=DIGITS, where=path)


def _load(path: Path) -> dict[str, Any]:
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise AcclimateError("SVHN comes as .mat files, which need scipy; install it") from error
    try:
        content: dict[str, Any] = loadmat(path)
    except Exception as error:  # on broken bytes scipy raises nearly anything
        raise AcclimateError(f"expected a readable MATLAB file at {path}, got: {error}") from error
    return content


def _missing(root: Path) -> list[str]:
    # The extra part is not needed for any published comparison of adaptation.
    names = [f"{split}_32x32.mat" for split in ("test", "train")]
    return [name for name in names if not (root / name).is_file()]


register_dataset(
    Dataset(
        name="svhn",
        title="SVHN, cropped digits (Netzer et al., 2011)",
        classes=10,
        images="26,032 test, 73,257 training and 531,131 extra",
        size="61 MiB (test), 174 MiB (train), 1.2 GiB (extra)",
        get="Get the files of format 2 from http://ufldl.stanford.edu/housenumbers/",
        layout="test_32x32.mat, train_32x32.mat, extra_32x32.mat",
        open=open_svhn,
        splits=("test", "train", "extra"),
        preprocessing=plain_scaling(32),
        missing=_missing,
    )
)
