"""What data sets hand out: a picture, a pair with a label, a dictionary of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from acclimate.data.decode import UnreadableImageError, to_eight_bit
from acclimate.data.pixels import channels_first, fit_pixels, to_numpy, want_preprocessing
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError

__all__ = ["label_number", "split_item", "to_pixels"]

_IMAGE_KEYS = ("pixel_values", "image", "img")
_LABEL_KEYS = ("label", "labels")


def split_item(item: object) -> tuple[Any, Any]:
    """Picture (or pictures) and label (or labels) of an item or a batch; None for no label.

    >>> split_item({"img": "a picture", "label": 3})
    ('a picture', 3)
    >>> split_item(("a picture", 3, "and more"))
    ('a picture', 3)
    """
    if isinstance(item, Mapping):
        image = next((item[key] for key in _IMAGE_KEYS if key in item), None)
        if image is None:
            raise AcclimateError(
                f"expected one of {', '.join(_IMAGE_KEYS)} in each item, "
                f"got {', '.join(map(str, item)) or 'an empty one'}"
            )
        return image, next((item[key] for key in _LABEL_KEYS if key in item), None)
    if isinstance(item, (tuple, list)):
        if not item:
            raise AcclimateError("expected an image or (image, label) as each item, got ()")
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def label_number(label: object) -> int:
    """A class number, or -1 for anything else (a path, a caption, a soft label).

    >>> import torch
    >>> label_number(torch.tensor([7])), label_number("a/path.png"), label_number(None)
    (7, -1, -1)
    """
    if isinstance(label, (Tensor, np.ndarray)):
        if to_numpy(label).size != 1:
            return -1
        label = label.item()
    return int(label) if isinstance(label, (int, np.integer)) else -1


def to_pixels(
    image: object, *, preprocessing: Preprocessing | None, where: str
) -> NDArray[np.uint8] | NDArray[np.float32]:
    """One picture as C×H×W: uint8 in the model's size, or float32 as it is."""
    try:
        if isinstance(image, Image.Image):
            wanted = want_preprocessing(preprocessing, "PIL images")
            return wanted.fit(to_eight_bit(image))
        if not isinstance(image, (Tensor, np.ndarray)):
            raise AcclimateError(
                f"expected a tensor, an array or a PIL image, got {type(image).__name__}"
            )
        array = channels_first(to_numpy(image)[None])[0]
        if array.dtype == np.uint8:
            return fit_pixels(array, want_preprocessing(preprocessing, "uint8 images"))
        if not np.isfinite(array).all():
            raise AcclimateError("the image has NaN or infinite pixels; remove or mend it")
        return np.ascontiguousarray(array, dtype=np.float32)
    except (AcclimateError, UnreadableImageError) as error:
        raise AcclimateError(f"{where}: {error}") from error
