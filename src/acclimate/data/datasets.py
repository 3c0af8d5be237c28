"""Images from torch data sets, loaders and anything that can be read item by item."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
)
from tqdm import tqdm

from acclimate.data.arrays import ArraySource
from acclimate.data.base import ImageSource, digest
from acclimate.data.decode import (
    UnreadableImageError,
    channels_first,
    decode,
    fit_pixels,
    to_eight_bit,
    to_numpy,
    want_preprocessing,
)
from acclimate.data.labels import Labels, check_labels
from acclimate.data.memory import cache_budget
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = ["open_items"]

_Collate = Callable[[list[Any]], Any]
_IMAGE_KEYS = ("pixel_values", "image", "img", "jpg", "jpeg", "png", "webp", "ppm")
_LABEL_KEYS = ("label", "labels", "cls")


class _MapStyle(Sized, Protocol):
    """Anything with a length and items by index."""

    def __getitem__(self, index: int, /) -> Any: ...


def open_items(
    data: object,
    *,
    preprocessing: Preprocessing | None = None,
    labels: Labels | None = None,
    class_count: int | None = None,
    cache: int | None = None,
    progress: bool = True,
) -> ImageSource:
    """A source of a Dataset, a DataLoader or an iterable of items or batches."""
    collate: _Collate | None = None
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset):
        _warn_of_sampler(data)
        # Single items do not need torch's own collate functions; the user's may change them.
        if data.collate_fn not in (default_collate, default_convert):
            collate = data.collate_fn
        data = data.dataset
    options: dict[str, Any] = {
        "preprocessing": preprocessing,
        "labels": labels,
        "class_count": class_count,
        "cache": cache,
        "progress": progress,
    }
    # Lists are read as streams are: they may hold batches.
    in_order = isinstance(data, (list, tuple, Mapping, bytes, IterableDataset))
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not in_order:
        return DatasetSource(cast(_MapStyle, data), collate=collate, **options)
    if isinstance(data, Mapping) and all(hasattr(each, "column_names") for each in data.values()):
        names = ", ".join(map(str, data))  # the splits of a Hugging Face data set
        raise AcclimateError(
            f"expected one data set, got several by name ({names or 'none'}); choose one: data[...]"
        )
    if isinstance(data, (Mapping, bytes)) or not isinstance(data, Iterable):
        raise AcclimateError(
            "expected a folder, a .npz or .npy file, an array, a tensor, a Dataset (with a "
            f"length), a DataLoader or an iterable of images, got {type(data).__name__}"
        )
    if not isinstance(data, (list, tuple)):
        warnings.warn(
            f"a {type(data).__name__} can be read only once and in its own order, so all of it is "
            "read into memory now",
            AcclimateWarning,
            stacklevel=4,
        )
    return _read_stream(data, **options)


def _warn_of_sampler(loader: DataLoader[Any]) -> None:
    """Warn that a sampler of the user's own has no effect."""
    usual = (SequentialSampler, RandomSampler, BatchSampler, type(None))
    own = [s for s in (loader.sampler, loader.batch_sampler) if type(s) not in usual]
    if own:
        warnings.warn(
            f"the loader's {type(own[0]).__name__} is not used: every image of its data set is "
            "read once an epoch, in a seeded order, so that a run can be repeated and resumed",
            AcclimateWarning,
            stacklevel=5,
        )


class DatasetSource(ImageSource):
    """A map-style data set, read by one thread, since its code may not be thread-safe.

    Opening reads every item once, for its label and to find broken ones before a run starts.
    Images are kept if all fit ``cache`` bytes, so random augmentation is drawn only once;
    otherwise they are read again whenever they are needed.
    """

    def __init__(
        self,
        dataset: _MapStyle,
        *,
        preprocessing: Preprocessing | None = None,
        collate: _Collate | None = None,
        labels: Labels | None = None,
        class_count: int | None = None,
        cache: int | None = None,
        progress: bool = True,
    ) -> None:
        self._dataset, self._collate, self._wanted = dataset, collate, preprocessing
        count = len(dataset)
        if count == 0:
            raise AcclimateError("expected at least one item in the data set, got none")
        self._first: NDArray[Any] | None = None
        first = self._first = self._item(0)[0]
        fits = count * first.nbytes <= cache_budget(cache)
        self._cached = np.empty((count, *first.shape), first.dtype) if fits else None
        found, contents = [], []
        for index in tqdm(range(count), desc="images", unit="", delay=1, disable=not progress):
            pixels, label = self._item(index)
            if self._cached is not None:
                self._cached[index] = pixels
            found.append(label)
            contents.append(hashlib.blake2b(pixels.tobytes(), digest_size=16).digest())
        self._fingerprint = digest([f"{first.shape} {first.dtype.str}".encode(), *contents])
        super().__init__(
            names=[str(index) for index in range(count)],
            labels=check_labels(
                found if labels is None else labels, count=count, class_count=class_count
            ),
            preprocessing=preprocessing if first.dtype == np.uint8 else None,
        )

    def read(self, indices: Tensor) -> Tensor:
        """The images at these indices, N×C×H×W on the CPU."""
        if self._cached is not None:
            return torch.from_numpy(self._cached[indices.numpy()])
        return torch.from_numpy(np.stack([self._item(i)[0] for i in indices.tolist()]))

    def fingerprint(self) -> str:
        """A digest of the images as they were read at opening."""
        return self._fingerprint

    def _item(self, index: int) -> tuple[NDArray[Any], int]:
        where = f"item {index} of the data set"
        try:
            item = self._dataset[index]
            image, label = _split_item(self._collate([item]) if self._collate else item)
            if self._collate:
                image, label = image[0], None if label is None else label[0]
        except AcclimateError:
            raise
        except Exception as error:  # somebody else's code
            raise AcclimateError(
                f"{where} cannot be read: {type(error).__name__}: {error}"
            ) from error
        pixels = _to_pixels(image, preprocessing=self._wanted, like=self._first, where=where)
        return pixels, _label_index(label)


def _read_stream(
    stream: Iterable[Any],
    *,
    preprocessing: Preprocessing | None,
    labels: Labels | None,
    class_count: int | None,
    cache: int | None,
    progress: bool,
) -> ArraySource:
    """Read items or batches to their end, into memory."""
    budget, used = cache_budget(cache), 0
    images: list[NDArray[Any]] = []
    found: list[int] = []
    for image, label in tqdm(
        _singles(stream), desc="images", unit="", delay=1, disable=not progress
    ):
        where = f"image {len(images)} of the stream"
        like = images[0] if images else None
        pixels = _to_pixels(image, preprocessing=preprocessing, like=like, where=where)
        used += pixels.nbytes
        if used > budget:
            raise AcclimateError(
                f"the stream does not fit in {budget:,} bytes of memory ({len(images):,} images "
                "read so far); give a folder, a .npy file or a map-style Dataset, or a larger cache"
            )
        images.append(pixels)
        found.append(_label_index(label))
    if not images:
        raise AcclimateError("expected at least one image, but there was nothing to read")
    known = check_labels(
        found if labels is None else labels, count=len(images), class_count=class_count
    )
    return ArraySource(np.stack(images), preprocessing=preprocessing, labels=known)


def _singles(stream: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Items one by one, batches taken apart."""
    for element in stream:
        image, label = _split_item(element)
        if isinstance(image, (Tensor, np.ndarray)) and image.ndim == 4:
            labels = [None] * len(image) if label is None else label
            if not hasattr(labels, "__len__") or len(labels) != len(image):
                raise AcclimateError(
                    f"expected as many labels as images in each batch, got {label!r:.80}"
                )
            yield from zip(image, labels, strict=True)
        else:
            yield image, label


def _split_item(item: object) -> tuple[Any, Any]:
    """Image (or images) and label (or labels) of an item or a batch; None for no label."""
    if isinstance(item, Mapping):
        image, label = (
            next((item[key] for key in keys if key in item), None)
            for keys in (_IMAGE_KEYS, _LABEL_KEYS)
        )
        if image is None:
            raise AcclimateError(
                f"expected one of {', '.join(_IMAGE_KEYS)} in each item, "
                f"got {', '.join(map(str, item)) or 'an empty one'}"
            )
        return image, label
    if isinstance(item, (tuple, list)):
        if not item:
            raise AcclimateError("expected an image or (image, label) as each item, got ()")
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def _label_index(label: object) -> int:
    """A class index, or -1 for anything else (a path, a caption, a soft label)."""
    if isinstance(label, bytes) and label.strip().isdigit():  # a .cls file, not decoded
        return int(label)
    if isinstance(label, (Tensor, np.ndarray)):
        if to_numpy(label).size != 1:
            return -1
        label = label.item()
    return int(label) if isinstance(label, (int, np.integer)) else -1


def _to_pixels(
    image: object, *, preprocessing: Preprocessing | None, like: NDArray[Any] | None, where: str
) -> NDArray[Any]:
    """One image as C×H×W, alike the first: uint8 in the model's size, or float32 unchanged."""
    try:
        pixels = _fitted(image, preprocessing)
    except (AcclimateError, UnreadableImageError) as error:
        raise AcclimateError(f"{where}: {error}") from error
    if like is not None and (pixels.shape, pixels.dtype) != (like.shape, like.dtype):
        raise AcclimateError(
            f"expected images alike, {like.shape} {like.dtype} as the first, got {pixels.shape} "
            f"{pixels.dtype} for {where}; resize them, or give uint8 images with preprocessing=..."
        )
    return pixels


def _fitted(image: object, preprocessing: Preprocessing | None) -> NDArray[Any]:
    if isinstance(image, Image.Image):
        return want_preprocessing(preprocessing, "PIL images").fit(to_eight_bit(image))
    if isinstance(image, bytes):  # a file, not decoded
        return decode(image, want_preprocessing(preprocessing, "image files"))
    if not isinstance(image, (Tensor, np.ndarray)):
        raise AcclimateError(
            f"expected a tensor, an array or a PIL image, got {type(image).__name__}"
        )
    array = channels_first(to_numpy(image)[None])[0]
    if array.dtype == np.uint8:
        return fit_pixels(array, want_preprocessing(preprocessing, "uint8 images"))
    if not np.isfinite(array).all():
        raise AcclimateError("the image has NaN or infinite pixels; remove or repair it")
    return np.ascontiguousarray(array, dtype=np.float32)
