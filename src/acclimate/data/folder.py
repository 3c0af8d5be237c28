"""Pictures in a folder: found, checked once at opening, kept in memory where they fit."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from acclimate.data.base import ImageSource, Skipped, digest
from acclimate.data.decode import UnreadableImageError, decode
from acclimate.data.labels import ClassList, Labels, check_labels, labels_of_paths
from acclimate.data.memory import cache_budget
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError
from acclimate.metrics import Scoring

__all__ = ["EXTENSIONS", "FolderSource", "find_images"]

EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
)
_FILES_AT_ONCE = 1024


class FolderSource(ImageSource):
    """The image files below a folder, in the order of their paths.

    Opening reads every file once: what cannot be decoded is left out (``skipped``), the rest is
    hashed, and kept in memory if all of it fits ``cache`` bytes. Subfolders that name classes give
    labels; ``labels`` overrides them, one per image file found, readable or not.

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
        self._root = Path(root)
        found = find_images(self._root) if names is None else _some(self._root, names)
        if labels is None:
            known, folders = labels_of_paths(found, classes)
            class_names = folders if class_names is None else class_names
        else:
            count = None if classes is None else len(classes)
            known = check_labels(labels, count=len(found), class_count=count)

        size = len(found) * int(np.prod(preprocessing.shape))
        fits = size <= cache_budget(cache)
        self._cached = np.empty((len(found), *preprocessing.shape), np.uint8) if fits else None
        results = _check(self._root, found, preprocessing, into=self._cached, progress=progress)
        # Pictures stay in the rows they were decoded to; gaps are cheaper than moving them all.
        self._rows = np.array([i for i, r in enumerate(results) if r.error is None], dtype=np.int64)
        skipped = [
            Skipped(name, result.error)
            for name, result in zip(found, results, strict=True)
            if result.error is not None
        ]
        if not len(self._rows):
            raise _all_skipped(self._root, skipped)
        kept = [found[row] for row in self._rows]
        self._fingerprint = digest(
            part
            for name, row in zip(kept, self._rows, strict=True)
            for part in (name.encode("utf-8", "surrogateescape"), results[row].content)
        )
        super().__init__(
            names=kept,
            labels=None if known is None else known[torch.from_numpy(self._rows)],
            class_names=class_names,
            preprocessing=preprocessing,
            skipped=skipped,
            scoring=scoring,
        )
        self._preprocessing = preprocessing

    def read(self, indices: Tensor) -> Tensor:
        """The pictures of these numbers, N×C×H×W uint8, decoded again if they were not kept."""
        if self._cached is not None:
            return torch.from_numpy(self._cached[self._rows[indices.numpy()]])
        names = [self.names[index] for index in indices.tolist()]
        images = np.empty((len(names), *self._preprocessing.shape), np.uint8)
        for name, result in zip(
            names,
            _check(self._root, names, self._preprocessing, into=images, progress=False),
            strict=True,
        ):
            if result.error is not None:
                raise AcclimateError(
                    f"{self._root / name} could be read when the folder was opened, but not any "
                    f"more: {result.error}; put it back, or start again without it"
                )
        return torch.from_numpy(images)

    def fingerprint(self) -> str:
        """A digest of the relative names and the contents of the files that were kept.

        Opening reads every byte anyway, so hashing contents costs next to nothing; unlike times
        of change it survives a copy to another machine and is not fooled by an edit.
        """
        return self._fingerprint


def find_images(root: Path) -> list[str]:
    """Relative paths (with ``/``) of all image files below ``root``, sorted; hidden ones aside."""
    if not root.exists():
        raise AcclimateError(f"expected a folder of images, but there is no {root}")
    if not root.is_dir():
        raise AcclimateError(f"expected a folder of images, but {root} is a file")
    files = list(_walk(root))
    images = sorted(
        file.relative_to(root).as_posix() for file in files if file.suffix.lower() in EXTENSIONS
    )
    if not images:
        known = ", ".join(sorted(extension[1:] for extension in EXTENSIONS))
        content = f"only {len(files)} other files" if files else "no files at all"
        raise AcclimateError(f"expected image files ({known}) in {root}, found {content}")
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


@dataclass(frozen=True)
class _Checked:
    """One file after reading: a digest of its content, or what was wrong with it."""

    content: bytes = b""
    error: str | None = None


def _check(
    root: Path,
    names: Sequence[str],
    preprocessing: Preprocessing,
    *,
    into: NDArray[np.uint8] | None,
    progress: bool,
) -> list[_Checked]:
    """Decode files in parallel (Pillow releases the lock), into the rows of an array if given."""

    def check(row: int) -> _Checked:
        try:
            data = (root / names[row]).read_bytes()
            picture = decode(data, preprocessing)
        except OSError as error:
            return _Checked(error=error.strerror or str(error))
        except UnreadableImageError as error:
            return _Checked(error=str(error))
        if into is not None:
            into[row] = picture
        return _Checked(content=hashlib.blake2b(data, digest_size=16).digest())

    results: list[_Checked] = []
    workers = min(len(names), os.cpu_count() or 1, 32)
    with (
        ThreadPoolExecutor(max(1, workers)) as pool,
        tqdm(total=len(names), desc="images", unit="", delay=1, disable=not progress) as bar,
    ):
        # In portions, so that an interrupt does not wait for a million queued files.
        for start in range(0, len(names), _FILES_AT_ONCE):
            for result in pool.map(check, range(start, min(start + _FILES_AT_ONCE, len(names)))):
                results.append(result)
                bar.update()
    return results


def _all_skipped(root: Path, skipped: Sequence[Skipped]) -> AcclimateError:
    first = "; ".join(f"{item.name}: {item.reason}" for item in skipped[:3])
    return AcclimateError(f"none of the {len(skipped)} images in {root} can be read ({first})")
