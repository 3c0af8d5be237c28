"""Pictures from torch data sets, loaders and anything that can be read item by item."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
)
from tqdm import tqdm

from acclimate.data.arrays import ArraySource
from acclimate.data.base import ImageSource, digest
from acclimate.data.files import label_number, split_item, to_pixels
from acclimate.data.labels import Labels, check_labels
from acclimate.data.memory import cache_budget
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = ["DatasetSource", "MapStyle", "custom_collate", "read_stream", "warn_of_sampler"]

Collate = Callable[[list[Any]], Any]


class MapStyle(Sized, Protocol):
    """Anything with a length and numbered items."""

    def __getitem__(self, index: int, /) -> Any: ...


class DatasetSource(ImageSource):
    """A map-style data set, read by one thread, since its code may not bear more.

    Opening reads every item once, for its label and to find broken ones before a run starts.
    Pictures are kept if all fit ``cache`` bytes, so random augmentation is drawn only once;
    otherwise they are read again whenever they are needed.
    """

    def __init__(
        self,
        dataset: MapStyle,
        *,
        preprocessing: Preprocessing | None = None,
        collate: Collate | None = None,
        labels: Labels | None = None,
        class_count: int | None = None,
        cache: int | None = None,
        progress: bool = True,
    ) -> None:
        self._dataset, self._collate, self._wanted = dataset, collate, preprocessing
        count = len(dataset)
        if count == 0:
            raise AcclimateError("expected at least one item in the data set, got none")
        first, _ = self._item(0)
        self._shape, self._dtype = first.shape, first.dtype
        fits = count * first.nbytes <= cache_budget(cache)
        self._cached = np.empty((count, *first.shape), first.dtype) if fits else None
        found, contents = [], []
        for index in tqdm(range(count), desc="images", unit="", delay=1, disable=not progress):
            picture, label = self._checked_item(index)
            if self._cached is not None:
                self._cached[index] = picture
            found.append(label)
            contents.append(hashlib.blake2b(picture.tobytes(), digest_size=16).digest())
        self._fingerprint = digest([f"{first.shape} {first.dtype.str}".encode(), *contents])
        super().__init__(
            names=[str(index) for index in range(count)],
            labels=check_labels(
                found if labels is None else labels, count=count, class_count=class_count
            ),
            preprocessing=preprocessing if first.dtype == np.uint8 else None,
        )

    def read(self, indices: Tensor) -> Tensor:
        """The pictures of these numbers, N×C×H×W on the CPU."""
        if self._cached is not None:
            return torch.from_numpy(self._cached[indices.numpy()])
        return torch.from_numpy(np.stack([self._checked_item(i)[0] for i in indices.tolist()]))

    def fingerprint(self) -> str:
        """A digest of the pictures as they were read at opening."""
        return self._fingerprint

    def _item(self, index: int) -> tuple[NDArray[Any], int]:
        try:
            item = self._dataset[index]
            image, label = split_item(self._collate([item]) if self._collate else item)
            if self._collate:
                image, label = image[0], None if label is None else label[0]
        except AcclimateError:
            raise
        except Exception as error:  # somebody else's code
            raise AcclimateError(
                f"item {index} of the data set cannot be read: {type(error).__name__}: {error}"
            ) from error
        where = f"item {index} of the data set"
        return to_pixels(image, preprocessing=self._wanted, where=where), label_number(label)

    def _checked_item(self, index: int) -> tuple[NDArray[Any], int]:
        picture, label = self._item(index)
        if (picture.shape, picture.dtype) != (self._shape, self._dtype):
            raise AcclimateError(
                f"expected images alike, {self._shape} {self._dtype} as the first, got "
                f"{picture.shape} {picture.dtype} for item {index} of the data set; resize them, "
                "or give uint8 images with preprocessing=..."
            )
        return picture, label


def read_stream(
    stream: Iterable[Any],
    *,
    preprocessing: Preprocessing | None = None,
    labels: Labels | None = None,
    class_count: int | None = None,
    cache: int | None = None,
    progress: bool = True,
) -> ArraySource:
    """Read items or batches to their end, into memory."""
    budget, used = cache_budget(cache), 0
    pictures: list[NDArray[Any]] = []
    found: list[int] = []
    for image, label in tqdm(
        _singles(stream), desc="images", unit="", delay=1, disable=not progress
    ):
        where = f"image {len(pictures)} of the stream"
        picture = to_pixels(image, preprocessing=preprocessing, where=where)
        if pictures and (picture.shape, picture.dtype) != (pictures[0].shape, pictures[0].dtype):
            raise AcclimateError(
                f"expected images alike, {pictures[0].shape} {pictures[0].dtype} as the first, "
                f"got {picture.shape} {picture.dtype} for {where}"
            )
        used += picture.nbytes
        if used > budget:
            raise AcclimateError(
                f"the stream does not fit in {budget:,} bytes of memory ({len(pictures):,} images "
                "read so far); give a folder, a .npy file or a map-style Dataset, or a larger cache"
            )
        pictures.append(picture)
        found.append(label_number(label))
    if not pictures:
        raise AcclimateError("expected at least one image, but there was nothing to read")
    known = check_labels(
        found if labels is None else labels, count=len(pictures), class_count=class_count
    )
    return ArraySource(np.stack(pictures), preprocessing=preprocessing, labels=known)


def custom_collate(loader: DataLoader[Any]) -> Collate | None:
    """The user's own collate function; None for torch's, which items do not need."""
    collate: Collate = loader.collate_fn
    return None if collate in (default_collate, default_convert) else collate


def warn_of_sampler(loader: DataLoader[Any]) -> None:
    """Say that a sampler of the user's own has no effect."""
    own = [
        type(sampler).__name__
        for sampler, usual in (
            (loader.sampler, (SequentialSampler, RandomSampler)),
            (loader.batch_sampler, (BatchSampler, type(None))),
        )
        if type(sampler) not in usual
    ]
    if own:
        warnings.warn(
            f"the loader's {own[0]} is not used: every image of its data set is read once an "
            "epoch, in a seeded order, so that a run can be repeated and resumed",
            AcclimateWarning,
            stacklevel=2,
        )


def _singles(stream: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Items one by one, batches taken apart."""
    for element in stream:
        image, label = split_item(element)
        if isinstance(image, (Tensor, np.ndarray)) and image.ndim == 4:
            labels = [None] * len(image) if label is None else label
            if not hasattr(labels, "__len__") or len(labels) != len(image):
                raise AcclimateError(
                    f"expected as many labels as images in each batch, got {label!r:.80}"
                )
            yield from zip(image, labels, strict=True)
        else:
            yield image, label
