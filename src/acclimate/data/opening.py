"""One door for pictures, however they are stored."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from acclimate.data.arrays import ArraySource, load_arrays
from acclimate.data.base import ImageSource
from acclimate.data.datasets import (
    DatasetSource,
    MapStyle,
    custom_collate,
    read_stream,
    warn_of_sampler,
)
from acclimate.data.decode import want_preprocessing
from acclimate.data.files import FolderSource
from acclimate.data.labels import ClassList, Labels, check_labels
from acclimate.data.preprocessing import Preprocessing
from acclimate.data.shards import ShardSource, expand_shards
from acclimate.data.shift import Shift, ShiftedSource
from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = ["open_images"]


def open_images(
    data: object,
    *,
    preprocessing: Preprocessing | None = None,
    labels: Labels | None = None,
    classes: ClassList | None = None,
    shift: str | Shift | None = None,
    cache: int | None = None,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> ImageSource:
    """Open pictures for adaptation.

    Args:
        data: a folder of image files, a ``.npz`` (``images`` and, if known, ``labels``) or
            ``.npy`` file, WebDataset shards (``data-{000..009}.tar``), an array or tensor, a torch
            Dataset or DataLoader, or any iterable of items or batches. uint8 pictures are fitted
            and scaled by ``preprocessing``; float ones (N×C×H×W) are model input as they are.
            Items are a picture, (picture, label) or a dictionary with ``image`` and ``label``.
        preprocessing: how the model was fed; needed for all but float pictures.
        labels: class numbers, -1 where unknown, instead of those found in the data.
        classes: the model's classes, to match folder names and check labels.
        shift: a corruption to see the pictures through, ``imagenet/fog:3``; nothing is written.
        cache: bytes of pictures to keep in memory; None is a third of what is available.
        device: where pictures are corrupted, if they are.
        progress: show a progress bar on stderr when opening takes longer than a second.

    >>> import torch
    >>> open_images(torch.zeros(4, 3, 8, 8), labels=[0, 1, 1, 0])
    <ArraySource: 4 images, labels, 0 skipped>
    """
    if isinstance(shift, str):
        shift = Shift.parse(shift)  # a typo shows before anything is read
    if isinstance(data, ImageSource) and labels is not None:
        raise AcclimateError("images that are open already bring their labels; give none beside")
    source = (
        data
        if isinstance(data, ImageSource)
        else _open(
            data,
            preprocessing=preprocessing,
            labels=labels,
            classes=classes,
            cache=cache,
            progress=progress,
        )
    )
    if shift is None:
        return source
    return ShiftedSource(source, shift, cache=cache, device=device)


def _open(
    data: object,
    *,
    preprocessing: Preprocessing | None,
    labels: Labels | None,
    classes: ClassList | None,
    cache: int | None,
    progress: bool,
) -> ImageSource:
    if isinstance(data, (str, Path)):
        source = _open_path(
            Path(data).expanduser(),
            preprocessing=preprocessing,
            labels=labels,
            classes=classes,
            cache=cache,
            progress=progress,
        )
    elif isinstance(data, (np.ndarray, Tensor)):
        source = _open_array(
            data, preprocessing=preprocessing, labels=labels, classes=classes, cache=cache
        )
    else:
        source = _open_items(
            data,
            preprocessing=preprocessing,
            labels=labels,
            classes=classes,
            cache=cache,
            progress=progress,
        )
    if source.skipped:
        first = "; ".join(f"{item.name}: {item.reason}" for item in source.skipped[:3])
        more = "; …" if len(source.skipped) > 3 else ""
        warnings.warn(
            f"{len(source.skipped)} of {len(source.skipped) + len(source)} images cannot be read "
            f"and are left out ({first}{more})",
            AcclimateWarning,
            stacklevel=4,
        )
    return source


def _open_path(
    path: Path,
    *,
    preprocessing: Preprocessing | None,
    labels: Labels | None,
    classes: ClassList | None,
    cache: int | None,
    progress: bool,
) -> ImageSource:
    if path.is_dir():
        return FolderSource(
            path,
            preprocessing=want_preprocessing(preprocessing, "image files"),
            labels=labels,
            classes=classes,
            cache=cache,
            progress=progress,
        )
    if path.name.lower().endswith((".tar", ".tar.gz", ".tgz")):
        return ShardSource(
            expand_shards(str(path)),
            preprocessing=want_preprocessing(preprocessing, "image files"),
            labels=labels,
            classes=classes,
            cache=cache,
            progress=progress,
        )
    kinds = "a folder of images, a .npz or .npy file, or .tar shards"
    if not path.exists():
        raise AcclimateError(f"expected {kinds}, no {path} here")
    if path.suffix.lower() not in (".npy", ".npz"):
        raise AcclimateError(f"expected {kinds}, got {path}")
    images, found = load_arrays(path)
    labels = found if labels is None else labels
    return _open_array(
        images, preprocessing=preprocessing, labels=labels, classes=classes, cache=cache
    )


def _open_array(
    images: NDArray[Any] | Tensor,
    *,
    preprocessing: Preprocessing | None,
    labels: Labels | None,
    classes: ClassList | None,
    cache: int | None,
) -> ImageSource:
    count = len(images) if images.ndim else 0
    known = (
        None if labels is None else check_labels(labels, count=count, class_count=_count(classes))
    )
    return ArraySource(images, preprocessing=preprocessing, labels=known, cache=cache)


def _open_items(
    data: object,
    *,
    preprocessing: Preprocessing | None,
    labels: Labels | None,
    classes: ClassList | None,
    cache: int | None,
    progress: bool,
) -> ImageSource:
    collate = None
    if isinstance(data, DataLoader) and not isinstance(data.dataset, IterableDataset):
        warn_of_sampler(data)
        collate = custom_collate(data)
        data = data.dataset
    if _is_map_style(data):
        return DatasetSource(
            data,
            preprocessing=preprocessing,
            collate=collate,
            labels=labels,
            class_count=_count(classes),
            cache=cache,
            progress=progress,
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
            stacklevel=3,
        )
    return read_stream(
        data,
        preprocessing=preprocessing,
        labels=labels,
        class_count=_count(classes),
        cache=cache,
        progress=progress,
    )


def _is_map_style(data: object) -> TypeGuard[MapStyle]:
    # Lists are read as streams are: they may hold batches.
    return (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not isinstance(data, (list, tuple, Mapping, bytes, IterableDataset))
    )


def _count(classes: ClassList | None) -> int | None:
    return None if classes is None else len(classes)
