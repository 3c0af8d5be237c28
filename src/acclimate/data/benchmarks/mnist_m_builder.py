"""Make MNIST-M from MNIST and any photos."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from acclimate.data.decode import to_eight_bit
from acclimate.data.folder import find_images
from acclimate.errors import AcclimateError

__all__ = ["build_mnist_m"]

_Photo = Callable[[], NDArray[np.uint8]]


def build_mnist_m(
    digits: NDArray[Any],
    photos: str | Path | Sequence[NDArray[Any]] | NDArray[Any],
    *,
    seed: int = 0,
    margin: int = 2,
    black_and_white: bool = True,
) -> NDArray[np.uint8]:
    """Lay each digit over a piece of a photo: the absolute difference of the two.

    As Ganin & Lempitsky (2015) describe it, in each of the three colour channels the digit's value
    is taken from the photo's and the sign dropped: where there is no ink the photo shows, where
    there is ink its negative. Grey photos count as colour with three equal channels.

    The defaults make pictures like the published ones, which say more than the article: there any
    ink is full ink, and the digit lies as it is in the middle of 32×32 pixels. (Turning the ink of
    the published test pictures back under that mask lowers the differences between neighbouring
    pixels by a third; resized digits and other thresholds do worse or even raise them.)

    Photo and place are drawn anew for each digit from ``seed`` and the digit's number alone, so
    the first hundred pictures are the same whether a hundred digits are given or all.

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
    sources = _photos(photos)
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
    for number in np.unique(chosen).tolist():
        name, read = sources[number]
        photo = _as_colour(read(), name, at_least=(height, width))
        room = np.array([photo.shape[0] - height + 1, photo.shape[1] - width + 1])
        for index in np.flatnonzero(chosen == number).tolist():
            top, left = (places[index] * room).astype(np.int64)
            piece = photo[top : top + height, left : left + width].astype(np.int16)
            result[index] = np.abs(piece - digits[index, :, :, None])
    return result


def _photos(
    photos: str | Path | Sequence[NDArray[Any]] | NDArray[Any],
) -> list[tuple[str, _Photo]]:
    if isinstance(photos, (str, Path)):
        root = Path(photos).expanduser()
        return [(str(root / name), _reader(root / name)) for name in find_images(root)]
    if not len(photos):
        raise AcclimateError("expected at least one photo, got none")
    return [(f"photo {index}", _held(photo)) for index, photo in enumerate(photos)]


def _held(photo: NDArray[Any]) -> _Photo:
    return lambda: photo


def _reader(path: Path) -> _Photo:
    def read() -> NDArray[np.uint8]:
        try:
            with Image.open(path) as image:
                return np.asarray(to_eight_bit(image), dtype=np.uint8)
        except Exception as error:  # on broken bytes Pillow's readers raise nearly anything
            raise AcclimateError(
                f"the photo {path} cannot be read ({error}); remove or mend it"
            ) from error

    return read


def _as_colour(photo: NDArray[Any], name: str, *, at_least: tuple[int, int]) -> NDArray[np.uint8]:
    shape = "×".join(map(str, photo.shape))
    if photo.dtype != np.uint8 or photo.ndim not in (2, 3) or photo.shape[2:] not in ((), (3,)):
        raise AcclimateError(f"expected uint8 H×W×3 or H×W as {name}, got {photo.dtype} {shape}")
    if photo.shape[0] < at_least[0] or photo.shape[1] < at_least[1]:
        raise AcclimateError(
            f"expected photos of at least {at_least[0]}×{at_least[1]} pixels, {name} has {shape}; "
            "remove or enlarge it"
        )
    return photo if photo.ndim == 3 else np.repeat(photo[:, :, None], 3, axis=2)
