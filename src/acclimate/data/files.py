"""Images in a folder, and the labels that its sub-folders give."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from acclimate.data.base import ImageSource, Skipped, digest
from acclimate.data.decode import UnreadableImageError, decode
from acclimate.data.labels import ClassList, Labels, Scoring, check_labels, labels_of_paths
from acclimate.data.memory import cache_budget
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = ["EXTENSIONS", "EncodedSource", "FolderSource", "find_images", "list_entries"]

_AT_ONCE = 1024


class EncodedSource(ImageSource):
    """Images behind a function that fetches the bytes of each.

    Opening fetches every image once: what cannot be decoded is left out (``skipped``), the rest
    is hashed, and kept in memory if all of it fits ``cache`` bytes.

    ``fetch(i)`` gives the bytes of image ``i``; it may raise OSError or UnreadableImageError, and
    is called from several threads. ``names`` has one for each image, readable or not, of which
    ``marks`` is what counts for the fingerprint; messages call the place ``where``.
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
        # Images stay in the rows they were decoded to; gaps are cheaper than moving them all.
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
        """The images at these indices, N×C×H×W uint8, decoded again if they were not kept."""
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
                image = decode(data, self._preprocessing)
            except OSError as error:
                return _Checked(error=error.strerror or str(error))
            except UnreadableImageError as error:
                return _Checked(error=str(error))
            if into is not None:
                into[place] = image
            return _Checked(content=hashlib.blake2b(data, digest_size=16).digest())

        results: list[_Checked] = []
        # More threads than the cores this process may use only get in each other's way.
        affinity = getattr(os, "sched_getaffinity", None)  # not on every system
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
        with (
            ThreadPoolExecutor(max(1, min(len(rows), cores, 32))) as pool,
            tqdm(total=len(rows), desc="images", unit="", delay=1, disable=not progress) as bar,
        ):
            # In portions, so that an interrupt does not wait for a million queued files.
            for start in range(0, len(rows), _AT_ONCE):
                for result in pool.map(check, range(len(rows))[start : start + _AT_ONCE]):
                    results.append(result)
                    bar.update()
        return results


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
    search would find, in their order. ``class_names`` are as for any source, and ``options``
    as for :class:`EncodedSource`.
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
        **options: Any,
    ) -> None:
        base = Path(root)
        found = find_images(base) if names is None else list(names)
        if not found:
            raise AcclimateError(f"expected at least one image in {base}, got an empty list")
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
            **options,
        )


def find_images(root: Path) -> list[str]:
    """Relative paths (with ``/``) of all image files below ``root``, sorted; hidden ones aside."""
    if not root.is_dir():
        found = f"{root} is a file" if root.exists() else f"there is no {root}"
        raise AcclimateError(f"expected a folder of images, but {found}")
    files = [(file, file.suffix.lower()) for file in _walk(root)]
    unread = Counter(kind for _, kind in files if kind in _UNREAD)
    images = sorted(file.relative_to(root).as_posix() for file, kind in files if kind in EXTENSIONS)
    if not images:
        known = ", ".join(sorted(extension[1:] for extension in EXTENSIONS))
        content = f"only {len(files)} other files" if files else "no files at all"
        raise AcclimateError(f"expected image files ({known}) in {root}, found {content}")
    if unread:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(unread.items()))
        warnings.warn(
            f"images of kinds that are not read are left out ({kinds}); convert them to JPEG or "
            "PNG to have them too",
            AcclimateWarning,
            stacklevel=2,
        )
    return images


def _walk(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    # Linked folders are followed, since data sets are often assembled so, but never in a ring.
    real = folder.resolve()
    if real not in above:
        for entry in list_entries(folder):
            if entry.is_dir():
                yield from _walk(folder / entry.name, above | {real})
            else:
                yield folder / entry.name


def list_entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder, hidden things aside."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except NotADirectoryError as error:
        raise AcclimateError(f"expected a folder, but {folder} is a file") from error
    except OSError as error:
        raise AcclimateError(f"cannot list {folder}: {error.strerror}") from error
