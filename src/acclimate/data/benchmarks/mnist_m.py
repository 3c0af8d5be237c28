"""MNIST-M: digits laid over pieces of colour photos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from acclimate.data.arrays import load_arrays
from acclimate.data.base import ImageSource
from acclimate.data.benchmarks.array_sets import ArraySet, check_count, find_file, plain_scaling
from acclimate.data.benchmarks.class_folders import present_source, table_lines
from acclimate.data.benchmarks.digits import DIGITS
from acclimate.data.benchmarks.registry import Request
from acclimate.data.decode import to_eight_bit
from acclimate.data.files import find_images
from acclimate.errors import AcclimateError
from acclimate.text import user_path

__all__ = ["build_mnist_m"]

# As published, and as made anew from all of MNIST (`build_mnist_m`). The paper states the latter.
_COUNTS = {"test": (9_001, 10_000), "train": (59_001, 60_000)}


def _open(request: Request) -> ImageSource:
    """The images of a split, in colour; 32×32 as published."""
    split = request.split or "test"
    if _MNIST_M.find_npz(request.root, split) is not None:
        return _MNIST_M.open(request)
    table = _table(request.root, split)
    if table is None:
        request.refuse(f"expected mnist_m_{split}_labels.txt of MNIST-M in {request.root}")
    rows = _read_table(table)
    check_count(request, str(table), len(rows), *_COUNTS[split])
    folder, (names, labels) = table.with_name(f"mnist_m_{split}"), zip(*rows, strict=True)
    return present_source(request, folder, names, labels, class_names=DIGITS)


def _read_table(path: Path) -> list[tuple[str, int]]:
    """Names and labels of a list with one ``00000000.png 7`` to a line."""
    rows: list[tuple[str, int]] = []
    for number, line in table_lines(path):
        name, _, label = line.strip().rpartition(" ")
        if not name or label not in DIGITS:
            raise AcclimateError(
                f"expected a file name and a digit in line {number} of {path}, got {line!r:.80}"
            )
        rows.append((name.strip(), int(label)))
    return rows


def _table(root: Path, split: str) -> Path | None:
    return find_file(root, [f"{at}mnist_m_{split}_labels.txt" for at in ("", "mnist_m/")])


def _missing(root: Path) -> list[str]:
    missing = []
    for split in _COUNTS:
        if _MNIST_M.find_npz(root, split) is None:
            table = _table(root, split)
            if table is None:
                missing.append(f"mnist_m_{split}_labels.txt")
            if table is None or not table.with_name(f"mnist_m_{split}").is_dir():
                missing.append(f"mnist_m_{split}/")
    return missing


_Photos = str | Path | Sequence[NDArray[Any]] | NDArray[Any]


def build_mnist_m(
    digits: NDArray[Any],
    photos: _Photos,
    *,
    seed: int = 0,
    margin: int = 2,
    black_and_white: bool = True,
) -> NDArray[np.uint8]:
    """Lay each digit over a piece of a photo: the absolute difference of the two.

    As Ganin & Lempitsky (2015) describe it, in each of the three colour channels the digit's value
    is taken from the photo's and the sign dropped: where there is no ink the photo shows, where
    there is ink its negative. Grey photos count as colour with three equal channels.

    The defaults make images like the published ones, which say more than the article: there any
    ink is full ink, and the digit lies unchanged in the middle of 32×32 pixels. (Turning the ink of
    the published test images back under that mask lowers the differences between neighbouring
    pixels by a third; resized digits and other thresholds do worse or even raise them.)

    Photo and place are drawn anew for each digit from ``seed`` and the digit's index alone, so
    the first hundred images are the same whether a hundred digits are given or all.

    Args:
        digits: uint8, N×28×28 (any size will do), ink white on black as in MNIST.
        photos: a folder of image files (the original took BSDS500), or uint8 arrays H×W×3 or H×W.
        seed: another seed, another set.
        margin: pixels of photo on each side of the digit.
        black_and_white: make all ink white first; without, it keeps its grey values.

    Returns:
        uint8, N×32×32×3. ``numpy.savez_compressed("mnist-m-test.npz", images=..., labels=...)``
        makes of it a file that the data set ``mnist-m`` opens.

    >>> digits = np.zeros((2, 28, 28), np.uint8)
    >>> digits[1] = 255
    >>> photo = np.full((40, 50, 3), (10, 20, 30), np.uint8)
    >>> build_mnist_m(digits, [photo])[:, 16, 16].tolist()
    [[10, 20, 30], [245, 235, 225]]
    """
    if digits.dtype != np.uint8 or digits.ndim != 3 or not digits.size:
        raise AcclimateError(
            f"expected digits as uint8 N×28×28, got {digits.dtype} "
            f"{'×'.join(map(str, digits.shape))}"
        )
    if margin < 0:
        raise AcclimateError(f"expected a margin >= 0, got {margin}")
    if isinstance(photos, (str, Path)):
        root = user_path(photos)
        sources: Sequence[Any] = [root / name for name in find_images(root)]
    else:
        sources = list(photos)
    if not sources:
        raise AcclimateError("expected at least one photo, got none")
    if black_and_white:
        digits = np.where(digits > 0, np.uint8(255), np.uint8(0))
    digits = np.pad(digits, ((0, 0), (margin, margin), (margin, margin)))
    count, height, width = digits.shape
    chosen = np.empty(count, np.int64)
    places = np.empty((count, 2))
    for index in range(count):
        generator = np.random.default_rng((seed, index))
        chosen[index] = generator.integers(len(sources))
        places[index] = generator.random(2)
    result = np.empty((count, height, width, 3), np.uint8)
    # Photo by photo, so that each is decoded once and one at a time is in memory.
    for which in np.unique(chosen).tolist():
        photo = _as_colour(sources[which], which, at_least=(height, width))
        room = np.array([photo.shape[0] - height + 1, photo.shape[1] - width + 1])
        for index in np.flatnonzero(chosen == which).tolist():
            top, left = (places[index] * room).astype(np.int64)
            piece = photo[top : top + height, left : left + width].astype(np.int16)
            result[index] = np.abs(piece - digits[index, :, :, None])
    return result


def _as_colour(
    photo: Path | NDArray[Any], index: int, *, at_least: tuple[int, int]
) -> NDArray[np.uint8]:
    """A photo, read if it is a file, with three channels."""
    name = f"photo {index}"
    if isinstance(photo, Path):
        name, path = str(photo), photo
        try:
            with Image.open(path) as image:
                photo = np.asarray(to_eight_bit(image), dtype=np.uint8)
        except Exception as error:  # on broken bytes Pillow's readers raise nearly anything
            raise AcclimateError(
                f"the photo {path} cannot be read ({error}); remove or repair it"
            ) from error
    shape = "×".join(map(str, photo.shape))
    if photo.dtype != np.uint8 or photo.ndim not in (2, 3) or photo.shape[2:] not in ((), (3,)):
        raise AcclimateError(f"expected uint8 H×W×3 or H×W as {name}, got {photo.dtype} {shape}")
    if photo.shape[0] < at_least[0] or photo.shape[1] < at_least[1]:
        raise AcclimateError(
            f"expected photos of at least {at_least[0]}×{at_least[1]} pixels, {name} has {shape}; "
            "remove or enlarge it"
        )
    return photo if photo.ndim == 3 else np.repeat(photo[:, :, None], 3, axis=2)


_MNIST_M = ArraySet(
    class_names=DIGITS,
    counts=_COUNTS,
    shapes=((32, 32, 3), (28, 28, 3)),
    files=lambda split: [],
    read=lambda paths: load_arrays(paths[0]),
    npz="mnist-m",
)
_MNIST_M.register("mnist-m", open=_open, preprocessing=plain_scaling(32), missing=_missing)
