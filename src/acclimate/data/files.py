"""Pictures in a folder, and the labels that its sub-folders give."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from acclimate.data.base import ImageSource, Skipped, digest
from acclimate.data.decode import (
    UnreadableImageError,
    channels_first,
    decode,
    fit_pixels,
    to_eight_bit,
    to_numpy,
    want_preprocessing,
)
from acclimate.data.labels import ClassList, Labels, check_labels, labels_of_paths
from acclimate.data.memory import cache_budget
from acclimate.data.preprocessing import Preprocessing
from acclimate.data.scoring import Scoring
from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = [
    "EXTENSIONS",
    "EncodedSource",
    "FolderSource",
    "find_images",
    "label_number",
    "split_item",
    "to_pixels",
]

_AT_ONCE = 1024


class EncodedSource(ImageSource):
    """Pictures behind a function that fetches the bytes of each.

    Opening fetches every picture once: what cannot be decoded is left out (``skipped``), the rest
    is hashed, and kept in memory if all of it fits ``cache`` bytes.

    Args:
        fetch: the bytes of picture number ``i``. May raise OSError or UnreadableImageError, and is
            called from several threads.
        names: one for each picture, readable or not.
        where: the place they lie in, for messages.
        marks: what of a name counts for the fingerprint; None is all of it.
        preprocessing: how the model was fed.
        labels: class numbers, one for each name.
        class_names: as for any source.
        scoring: as for any source.
        cache: bytes of pictures to keep; None is a third of what is available.
        progress: show a bar on stderr.
    """

    def __init__(
        self,
        fetch: Callable[[int], bytes],
        *,
        names: Sequence[str],
        where: str,
        preprocessing: Preprocessing,
        marks: Sequence[str] | None = None,
        labels: Tensor | None = None,
        class_names: Sequence[str] | None = None,
        scoring: Scoring | None = None,
        cache: int | None = None,
        progress: bool = True,
    ) -> None:
        self._fetch, self._where, self._preprocessing = fetch, where, preprocessing
        size = len(names) * int(np.prod(preprocessing.shape))
        fits = size <= cache_budget(cache)
        self._cached = np.empty((len(names), *preprocessing.shape), np.uint8) if fits else None
        results = self._decode(range(len(names)), into=self._cached, progress=progress)
        # Pictures stay in the rows they were decoded to; gaps are cheaper than moving them all.
        self._rows = np.array([i for i, r in enumerate(results) if r.error is None], dtype=np.int64)
        skipped = [
            Skipped(name, result.error)
            for name, result in zip(names, results, strict=True)
            if result.error is not None
        ]
        if not len(self._rows):
            first = "; ".join(f"{item.name}: {item.reason}" for item in skipped[:3])
            count = f"none of the {len(skipped)} images in {where}"
            raise AcclimateError(f"{count} can be read ({first})")
        marks = names if marks is None else marks
        self._fingerprint = digest(
            part
            for row in self._rows
            for part in (marks[row].encode("utf-8", "surrogateescape"), results[row].content)
        )
        super().__init__(
            names=[names[row] for row in self._rows],
            labels=None if labels is None else labels[torch.from_numpy(self._rows)],
            class_names=class_names,
            preprocessing=preprocessing,
            skipped=skipped,
            scoring=scoring,
        )

    def read(self, indices: Tensor) -> Tensor:
        """The pictures of these numbers, N×C×H×W uint8, decoded again if they were not kept."""
        rows = self._rows[indices.numpy()]
        if self._cached is not None:
            return torch.from_numpy(self._cached[rows])
        images = np.empty((len(rows), *self._preprocessing.shape), np.uint8)
        results = self._decode(rows.tolist(), into=images, progress=False)
        for index, result in zip(indices.tolist(), results, strict=True):
            if result.error is not None:
                raise AcclimateError(
                    f"{self.names[index]} in {self._where} could be read at opening, but not any "
                    f"more: {result.error}; put it back, or start again without it"
                )
        return torch.from_numpy(images)

    def fingerprint(self) -> str:
        """A digest of the names and the contents of the files that were kept.

        Opening reads every byte anyway, so hashing contents costs next to nothing; unlike times
        of change it survives a copy to another machine and is not fooled by an edit.
        """
        return self._fingerprint

    def _decode(
        self, rows: Sequence[int], *, into: NDArray[np.uint8] | None, progress: bool
    ) -> list[_Checked]:
        """Decode in parallel (decoders release the lock), into an array if one is given."""

        def check(place: int) -> _Checked:
            try:
                data = self._fetch(rows[place])
                picture = decode(data, self._preprocessing)
            except OSError as error:
                return _Checked(error=error.strerror or str(error))
            except UnreadableImageError as error:
                return _Checked(error=str(error))
            if into is not None:
                into[place] = picture
            return _Checked(content=hashlib.blake2b(data, digest_size=16).digest())

        results: list[_Checked] = []
        workers = min(len(rows), _usable_cores(), 32)
        with (
            ThreadPoolExecutor(max(1, workers)) as pool,
            tqdm(total=len(rows), desc="images", unit="", delay=1, disable=not progress) as bar,
        ):
            # In portions, so that an interrupt does not wait for a million queued files.
            for start in range(0, len(rows), _AT_ONCE):
                for result in pool.map(check, range(start, min(start + _AT_ONCE, len(rows)))):
                    results.append(result)
                    bar.update()
        return results


def _usable_cores() -> int:
    # More threads than the cores this process may use only get in each other's way.
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


@dataclass(frozen=True)
class _Checked:
    """One file after reading: a digest of its content, or what was wrong with it."""

    content: bytes = b""
    error: str | None = None


EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
)
_UNREAD = frozenset(
    (".heic", ".heif", ".avif", ".jxl", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raw")
)


class FolderSource(EncodedSource):
    """The image files below a folder, in the order of their paths.

    Sub-folders that name classes give labels; ``labels`` overrides them, one per image file found,
    readable or not.

    A benchmark knows its files: ``names`` (relative paths, with ``/``) are read instead of what a
    search would find, in their order, and ``class_names`` and ``scoring`` are as for any source.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        preprocessing: Preprocessing,
        labels: Labels | None = None,
        classes: ClassList | None = None,
        names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        scoring: Scoring | None = None,
        cache: int | None = None,
        progress: bool = True,
    ) -> None:
        base = Path(root)
        found = find_images(base) if names is None else _some(base, names)
        if labels is None:
            known, folders = labels_of_paths(found, classes)
            class_names = folders if class_names is None else class_names
        else:
            count = None if classes is None else len(classes)
            known = check_labels(labels, count=len(found), class_count=count)

        super().__init__(
            lambda row: (base / found[row]).read_bytes(),
            names=found,
            where=str(base),
            preprocessing=preprocessing,
            labels=known,
            class_names=class_names,
            scoring=scoring,
            cache=cache,
            progress=progress,
        )


def find_images(root: Path) -> list[str]:
    """Relative paths (with ``/``) of all image files below ``root``, sorted; hidden ones aside."""
    if not root.exists():
        raise AcclimateError(f"expected a folder of images, but there is no {root}")
    if not root.is_dir():
        raise AcclimateError(f"expected a folder of images, but {root} is a file")
    files = list(_walk(root))
    unread = Counter(file.suffix.lower() for file in files if file.suffix.lower() in _UNREAD)
    images = sorted(
        file.relative_to(root).as_posix() for file in files if file.suffix.lower() in EXTENSIONS
    )
    if not images:
        known = ", ".join(sorted(extension[1:] for extension in EXTENSIONS))
        content = f"only {len(files)} other files" if files else "no files at all"
        raise AcclimateError(f"expected image files ({known}) in {root}, found {content}")
    if unread:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(unread.items()))
        warnings.warn(
            f"pictures of kinds that are not read are left out ({kinds}); convert them to JPEG or "
            "PNG to have them too",
            AcclimateWarning,
            stacklevel=2,
        )
    return images


def _some(root: Path, names: Sequence[str]) -> list[str]:
    if not names:
        raise AcclimateError(f"expected at least one image in {root}, got an empty list")
    return list(names)


def _walk(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    # Linked folders are followed, since data sets are often assembled so, but never in a ring.
    real = folder.resolve()
    if real in above:
        return
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as error:
        raise AcclimateError(f"cannot look into {folder}: {error.strerror}") from error
    for entry in entries:
        if entry.is_dir():
            yield from _walk(entry, above | {real})
        else:
            yield entry


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
