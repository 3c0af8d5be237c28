"""Images in a folder, and the labels that its sub-folders give."""

from __future__ import annotations

import hashlib
import os
import stat
import warnings
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from acclimate.data.base import ImageSource, Skipped, digest
from acclimate.data.decode import UnreadableImageError, decode, image_formats
from acclimate.data.labels import ClassList, Labels, Scoring, check_labels, labels_of_paths
from acclimate.data.memory import cache_budget
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = [
    "EXTENSIONS",
    "EncodedSource",
    "FolderSource",
    "find_images",
    "list_entries",
    "refuse_large_file",
]

_AT_ONCE = 1024


class EncodedSource(ImageSource):
    """Images behind a function that fetches the bytes of each.

    Opening fetches every image once: what cannot be decoded is left out (``skipped``), the rest
    is hashed, and kept in memory if all of it fits ``cache`` bytes.

    ``fetch(i)`` gives the bytes of image ``i``; it may raise OSError or UnreadableImageError, and
    is called from several threads. ``names`` has one for each image, readable or not, of which
    ``marks`` is what counts for the fingerprint; messages call the place ``where``. ``left_out`` is
    what was not even tried.
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
        left_out: Sequence[Skipped] = (),
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
        self._contents = [result.content for result in results]
        marks = names if marks is None else marks
        self._fingerprint = digest(
            part
            for row in self._rows
            for part in (marks[row].encode("utf-8", "surrogateescape"), self._contents[row])
        )
        super().__init__(
            names=[names[row] for row in self._rows],
            labels=None if labels is None else labels[torch.from_numpy(self._rows)],
            class_names=class_names,
            preprocessing=preprocessing,
            skipped=[*skipped, *left_out],
            scoring=scoring,
        )

    def read(self, indices: Tensor) -> Tensor:
        """The images at these indices, N×C×H×W uint8, decoded again if they were not kept."""
        rows = self._rows[indices.numpy()]
        if self._cached is not None:
            return torch.from_numpy(self._cached[rows])
        images = np.empty((len(rows), *self._preprocessing.shape), np.uint8)
        results = self._decode(rows.tolist(), into=images, progress=False)
        for index, row, result in zip(indices.tolist(), rows.tolist(), results, strict=True):
            if result.error is not None:
                raise AcclimateError(
                    f"{self.names[index]} in {self._where} could be read at opening, but not any "
                    f"more: {result.error}; put it back, or start again without it"
                )
            if result.content != self._contents[row]:
                raise AcclimateError(
                    f"{self.names[index]} in {self._where} was changed since it was opened: a "
                    "result would be of neither image; put it back, or start again"
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
    (".apng", ".bmp", ".dib", ".gif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm",
     ".pgm", ".png", ".pnm", ".ppm", ".tga", ".tif", ".tiff", ".webp")
)  # fmt: skip
# What lies beside images, and nobody misses among them.
_BESIDE = frozenset(
    (".cls", ".csv", ".db", ".html", ".ini", ".json", ".jsonl", ".log", ".mat", ".md", ".npy",
     ".npz", ".pdf", ".pt", ".py", ".safetensors", ".tar", ".tex", ".toml", ".tsv", ".txt", ".xml",
     ".yaml", ".yml", ".zip")
)  # fmt: skip
# Their content would be read as that of a TIFF file, whose first image is a thumbnail.
_RAW = frozenset((".arw", ".cr2", ".cr3", ".dng", ".nef", ".orf", ".raf", ".raw", ".rw2"))
_LARGEST = 2**30  # bytes of an image file


class FolderSource(EncodedSource):
    """The image files below a folder, in the order of their paths.

    Sub-folders that name classes give labels, with ``by_index`` numbered ones too; ``labels``
    overrides them, one per image file found, readable or not.

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
        by_index: bool = False,
        names: Sequence[str] | None = None,
        class_names: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        base = Path(root)
        found, left_out = _search(base) if names is None else (list(names), [])
        if not found:
            raise AcclimateError(f"expected at least one image in {base}, got an empty list")
        if labels is None:
            known, folders = labels_of_paths(found, classes, by_index=by_index)
            class_names = folders if class_names is None else class_names
        else:
            count = None if classes is None else len(classes)
            known = check_labels(labels, count=len(found), class_count=count)

        super().__init__(
            lambda row: _content(base / found[row]),
            names=found,
            where=str(base),
            preprocessing=preprocessing,
            labels=known,
            class_names=class_names,
            left_out=left_out,
            **options,
        )


def find_images(root: Path) -> list[str]:
    """Relative paths (with ``/``) of all image files below ``root``, sorted; hidden ones aside.

    Files with another ending, or none, are images where their content is.
    """
    images, left_out = _search(root)
    if left_out:
        counts = Counter(Path(item.name).suffix.lower() or "without an ending" for item in left_out)
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
        warnings.warn(
            f"what is not read as an image is left out ({kinds}); convert it to JPEG or PNG to "
            "have it too",
            AcclimateWarning,
            stacklevel=2,
        )
    return images


def _search(root: Path) -> tuple[list[str], list[Skipped]]:
    """The image files below a folder, and what else is there that may have been meant as one."""
    if not root.is_dir():
        found = f"{root} is a file" if root.exists() else f"there is no {root}"
        raise AcclimateError(f"expected a folder of images, but {found}")
    files, again = _walk(root)
    images: list[str] = []
    left_out = [Skipped(name, "a link to a folder that is read already") for name in again]
    others = 0
    for name in sorted(files):
        kind = os.path.splitext(name)[1].lower()
        if kind in EXTENSIONS or (kind not in _BESIDE | _RAW and _is_image(root / name)):
            images.append(name)
            continue
        others += 1
        if kind not in _BESIDE:
            left_out.append(Skipped(name, f"not an image that is read ({kind or 'no ending'})"))
    if not images:
        known = ", ".join(sorted(extension[1:] for extension in EXTENSIONS))
        content = f"only {others} other files" if others else "no files at all"
        raise AcclimateError(f"expected image files ({known}) in {root}, found {content}")
    return images, left_out


def _walk(root: Path) -> tuple[list[str], list[str]]:
    """All files below a folder, and the links in it that lead to folders read already.

    Linked folders are followed, since data sets are often assembled so, but each folder is read
    once, by its own path where it has one: links can make more paths than a disk has files.
    """
    files: list[str] = []
    again: list[str] = []
    seen: set[tuple[int, int]] = set()
    own, links = [""], deque[str]()
    while own or links:
        below = own.pop() if own else links.popleft()
        there = (root / below).stat()
        if (there.st_dev, there.st_ino) in seen:
            again.append(below.rstrip("/"))
            continue
        seen.add((there.st_dev, there.st_ino))
        for entry in sorted(list_entries(root / below), key=lambda entry: entry.name):
            path = below + entry.name
            if entry.is_dir(follow_symlinks=False):
                own.append(f"{path}/")
            elif _leads_to_folder(entry):
                links.append(f"{path}/")
            else:
                files.append(path)
    return files, again


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a ring, or more of them than a system follows
        return False


def _is_image(path: Path) -> bool:
    """Whether the content of a file is that of an image we read, by the mark it begins with."""
    try:
        with _opened(path) as file, Image.open(file, formats=image_formats()[:-1]):
            return True
    except Exception:  # on broken bytes Pillow's readers raise nearly anything
        return False


def _content(path: Path) -> bytes:
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        refuse_large_file(size)
        return file.read(size + 1)


def refuse_large_file(size: int) -> None:
    """Refuse an image file of more bytes than are read."""
    if size > _LARGEST:
        raise UnreadableImageError(f"too large ({size:,} bytes, expected at most {_LARGEST:,})")


def _opened(path: Path) -> BinaryIO:
    """A file to read; not a pipe, which nobody may write to, nor a device, which may never end."""
    file = open(path, "rb", opener=_at_once)  # noqa: SIM115 (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UnreadableImageError("not a file but a pipe, a device or a socket")
    return file


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # opening a pipe would wait


def list_entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder, hidden things aside."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except NotADirectoryError as error:
        raise AcclimateError(f"expected a folder, but {folder} is a file") from error
    except OSError as error:
        raise AcclimateError(f"cannot list {folder}: {error.strerror}") from error
