"""One function for images, however they are stored."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acclimate.data.arrays import ArraySource, load_arrays
from acclimate.data.base import ImageSource
from acclimate.data.datasets import open_items
from acclimate.data.decode import want_preprocessing
from acclimate.data.files import FolderSource
from acclimate.data.labels import (
    BY_INDEX,
    NO_LABELS,
    ClassList,
    Labels,
    LabelsFrom,
    check_labels,
    read_labels,
)
from acclimate.data.preprocessing import Preprocessing
from acclimate.data.shards import ShardSource, expand_shards
from acclimate.data.shift import Shift
from acclimate.data.shifted import ShiftedSource, made_shift
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.text import user_path

__all__ = ["open_images"]


def open_images(
    data: object,
    *,
    preprocessing: Preprocessing | None = None,
    labels: LabelsFrom | None = None,
    classes: ClassList | None = None,
    shift: str | Shift | None = None,
    cache: int | None = None,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> ImageSource:
    """Open images for adaptation.

    Args:
        data: a folder of image files, a ``.npz`` (``images`` and, if known, ``labels``) or
            ``.npy`` file, WebDataset shards (``data-{000..009}.tar``), a list of paths, an array or
            tensor, a Dataset (torch, torchvision, Hugging Face, WebDataset) or DataLoader, or any
            iterable of items or batches. uint8 images are fitted and scaled by ``preprocessing``;
            float ones (N×C×H×W) are used as model input unchanged. Items are an image, (image,
            label) or a dictionary with ``image`` and ``label``, or ``jpg`` (``png``, ...) and
            ``cls``; in a list of paths a path or (path, label).
        preprocessing: how the model was fed; needed for all but float images.
        labels: class indices, -1 where unknown, instead of those found in the data; or a table with
            the columns file and class; "index" takes sub-folders numbered by class for labels too,
            "none" takes none.
        classes: the model's classes, to match folder names and check labels.
        shift: a corruption to apply on the fly, ``imagenet/fog:3``; nothing is written.
        cache: bytes of images to keep in memory; None is a third of what is available.
        device: where images are corrupted, if they are.
        progress: show a progress bar on stderr when opening takes longer than a second.

    >>> import torch
    >>> open_images(torch.zeros(4, 3, 8, 8), labels=[0, 1, 1, 0])
    <ArraySource: 4 images, labels, 0 skipped>
    """
    if shift is not None:
        shift = made_shift(shift)  # a typo shows before anything is read
    if isinstance(data, ImageSource):
        if labels is not None:
            raise AcclimateError("expected no labels=... with an ImageSource, which has its own")
        source = data
    else:
        options: dict[str, Any] = {
            "labels": labels,
            "classes": classes,
            "cache": cache,
            "progress": progress,
        }
        source = _labelled(data, preprocessing, **options)
        if source.skipped:
            first = "; ".join(f"{item.name}: {item.reason}" for item in source.skipped[:3])
            more = "; …" if len(source.skipped) > 3 else ""
            total = len(source.skipped) + len(source)
            warnings.warn(
                f"{len(source.skipped)} of {total} images cannot be read and are left out "
                f"({first}{more})",
                AcclimateWarning,
                stacklevel=3,
            )
    return source if shift is None else ShiftedSource(source, shift, cache=cache, device=device)


def _labelled(
    data: object,
    preprocessing: Preprocessing | None,
    *,
    labels: LabelsFrom | None,
    classes: ClassList | None,
    **options: Any,
) -> ImageSource:
    """The images with the labels asked for, wherever those are."""
    if not isinstance(labels, (str, Path)):
        return _open(data, preprocessing, labels=labels, classes=classes, **options)
    if labels == BY_INDEX:
        if not isinstance(data, (str, Path)):
            raise AcclimateError(f'labels="{BY_INDEX}" is for folders, got {type(data).__name__}')
        return _open(data, preprocessing, labels=None, classes=classes, by_index=True, **options)
    source = _open(data, preprocessing, labels=None, classes=None, **options)
    source.class_names = None
    source.labels = None if labels == NO_LABELS else read_labels(labels, source.names, classes)
    return source


def _open(
    data: object, preprocessing: Preprocessing | None, *, by_index: bool = False, **options: Any
) -> ImageSource:
    if isinstance(data, (str, Path)):
        path = user_path(data)
        is_tar = path.name.lower().endswith((".tar", ".tar.gz", ".tgz"))
        if path.is_dir() or is_tar:
            options["by_index"] = by_index
            wanted = want_preprocessing(preprocessing, "image files")
            if path.is_dir():
                return FolderSource(path, preprocessing=wanted, **options)
            return ShardSource(expand_shards(path), preprocessing=wanted, **options)
        kinds = "a folder of images, a .npz or .npy file, or .tar shards"
        if not path.exists():
            raise AcclimateError(f"expected {kinds}, but {path} does not exist")
        if path.suffix.lower() not in (".npy", ".npz") or not path.is_file():
            raise AcclimateError(f"expected {kinds}, got {path}")
        data, found = load_arrays(path)
        options["labels"] = found if options["labels"] is None else options["labels"]
    if (listed := _listed_paths(data)) is not None:
        wanted = want_preprocessing(preprocessing, "image files")
        paths, beside = listed
        options["labels"] = beside if options["labels"] is None else options["labels"]
        return FolderSource(Path(), names=paths, preprocessing=wanted, **options)
    classes, labels = options.pop("classes"), options.pop("labels")
    class_count = None if classes is None else len(classes)
    if not isinstance(data, (np.ndarray, Tensor)):
        return open_items(
            data, preprocessing=preprocessing, labels=labels, class_count=class_count, **options
        )
    if labels is not None:
        count = len(data) if data.ndim else 0
        labels = check_labels(labels, count=count, class_count=class_count)
    return ArraySource(data, preprocessing=preprocessing, labels=labels, cache=options["cache"])


def _listed_paths(data: object) -> tuple[list[str], Labels | None] | None:
    """The files that a list of paths, or of (path, label), names; None for anything else."""
    if not isinstance(data, (list, tuple)) or not data:
        return None
    pairs = [item if isinstance(item, tuple) and len(item) == 2 else (item, None) for item in data]
    named = [isinstance(path, (str, Path)) for path, _ in pairs]
    if not any(named):
        return None
    if not all(named):
        other = type(pairs[named.index(False)][0]).__name__
        raise AcclimateError(f"expected a list of paths, got one with a {other} among them")
    labels = [-1 if label is None else label for _, label in pairs]
    known = any(label is not None for _, label in pairs)
    return [str(user_path(path)) for path, _ in pairs], labels if known else None
