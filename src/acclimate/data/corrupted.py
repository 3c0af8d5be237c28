"""Write a clean set to disk as an ImageNet-C or CIFAR-10-C, in the published layouts.

On all cores, with a progress bar; the same call resumes where an earlier one stopped.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from acclimate._version import __version__
from acclimate.data.base import ImageSource, digest
from acclimate.data.corruptions import (
    PRESETS,
    SEVERITIES,
    Preset,
    constants,
    corrupt_indexed,
    named_in_results,
)
from acclimate.data.files import EXTENSIONS
from acclimate.data.labels import ClassList, labels_of_paths
from acclimate.data.shift import GROUPS, Shift
from acclimate.data.shifted import JPEG_QUALITY, check_sides
from acclimate.errors import AcclimateError, unknown_name
from acclimate.files import json_writer, write_files
from acclimate.lock import LOCK, claimed
from acclimate.reading import read_object
from acclimate.text import plain_name, user_path

__all__ = ["Written", "check_call", "choose_shifts", "write_corrupted"]

_Rows = NDArray[np.int64]
_VALUES_AT_ONCE = 2**23
_MANIFEST = "manifest.json"
_FORMAT = 1  # raised when the same call would write other images, so that the two are not mixed

# What has to be the same for two calls to add to one data set, and what messages call it.
_IDENTITY = {
    "format": "format",
    "preset": "preset",
    "seed": "seed",
    "images": "number of images",
    "source": "images (by their digest)",
    "labels": "labels (by their digest)",
    "prepared": "preparation",
    "storage": "storage",
}


@dataclass(frozen=True)
class Written:
    """What a call made: how many images now, and how many were there before."""

    out: Path
    made: int
    kept: int


def write_corrupted(
    source: ImageSource,
    out: str | Path,
    *,
    preset: Preset,
    shifts: Sequence[str] = ("all",),
    seed: int = 0,
    workers: int | None = None,
    progress: bool = True,
) -> Written:
    """Write a corrupted copy of a clean set, in the published layout of the preset.

    ``imagenet`` makes ``fog/3/CLASS/NAME.JPEG`` of quality 85, ``cifar`` makes ``fog.npy`` with
    the five severities in a row and ``labels.npy``. The same call resumes where it was stopped;
    other shifts are added to what is there. ``manifest.json`` holds seed and constants.

    Args:
        source: clean uint8 images, from `open_images`.
        out: a folder of its own.
        preset: whose constants and layout, ``"imagenet"`` or ``"cifar"``.
        shifts: ``all``, ``dev``, ``test``, names, or names with a severity (``fog:3``).
        seed: another seed, another draw.
        workers: threads; None is one for each core.
        progress: show a bar on stderr.
    """
    out = user_path(out)
    check_call(out, preset=preset, shifts=shifts, seed=seed, workers=workers)
    if source.preprocessing is None:
        raise AcclimateError("expected uint8 images to corrupt, got float model input")
    check_sides(source.preprocessing)
    chosen = choose_shifts(shifts)
    total, made = len(source) * sum(map(len, chosen.values())), 0
    cores = workers or os.cpu_count() or 1
    most = max(1, _VALUES_AT_ONCE // int(np.prod(source.preprocessing.shape)))

    def write(name: str, severity: int, rows: _Rows) -> int:
        at = torch.from_numpy(rows)
        clean = source.read(at)
        images = corrupt_indexed(clean, at, name, severity, preset=preset, seed=seed)
        store.write(name, severity, rows, images.permute(0, 2, 3, 1).numpy())
        return len(rows)

    try:
        with claimed(out):
            kind = _JpegStore if preset == "imagenet" else _ArrayStore
            manifest = _Manifest(out, source, preset=preset, seed=seed, storage=kind.storage)
            manifest.start(chosen)
            store = kind(out, source, shifts=chosen)
            with tqdm(total=total, unit="image", disable=not progress, smoothing=0) as bar:
                for name, severity in ((name, s) for name, each in chosen.items() for s in each):
                    bar.set_description(f"{name}:{severity}")
                    missing = store.missing(name, severity)
                    bar.update(len(source) - len(missing))
                    # At least one for each core; and never an empty one.
                    pieces = min(len(missing), max(-(-len(missing) // most), cores))
                    chunks = np.array_split(missing, pieces) if pieces else []
                    for count in _in_threads(partial(write, name, severity), chunks, cores):
                        made += count
                        bar.update(count)
                    store.finish(name, severity)
                    manifest.finish(name, severity)
    except OSError as error:
        raise AcclimateError(
            f"could not write to {out}: {error.strerror or error}; what is there is kept, and the "
            "same call resumes from it"
        ) from error
    return Written(out, made=made, kept=total - made)


def check_call(
    out: Path, *, preset: str, shifts: Sequence[str], seed: int, workers: int | None
) -> None:
    """Refuse what can be refused before an image is read."""
    if preset not in PRESETS:
        raise unknown_name("preset", str(preset), PRESETS)
    for what, value, least in (("seed", seed, 0), ("workers", workers, 1)):
        if value is not None and value < least:
            raise AcclimateError(f"expected {what} >= {least}, got {value}")
    choose_shifts(shifts)
    try:
        known = not out.exists() or (out / _MANIFEST).exists()
        foreign = not known and any(path.name != LOCK for path in out.iterdir())
    except NotADirectoryError:
        raise AcclimateError(f"expected a folder to write to, but {out} is a file") from None
    if foreign:
        raise AcclimateError(
            f"{out} is not empty and has no {_MANIFEST}, so it was not made by acclimate corrupt; "
            "choose another folder"
        )


def choose_shifts(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The severities asked for of each corruption, in the benchmark's order.

    >>> choose_shifts(["fog:3", "snow", "fog:1"])
    {'snow': (1, 2, 3, 4, 5), 'fog': (1, 3)}
    >>> len(choose_shifts(["all"]))
    19
    """
    if not words:
        raise AcclimateError("expected at least one shift: all, dev, test, NAME or NAME:SEVERITY")
    asked: dict[str, set[int]] = {}
    for word in words:
        shift = Shift.parse(word)
        if shift.preset or shift.seed:
            raise AcclimateError(
                f"expected all, dev, test, NAME or NAME:SEVERITY, got {word!r}; give the preset "
                "and the seed by their own options (--preset, --seed)"
            )
        for each in shift.expanded():
            if each.name not in GROUPS["all"]:
                raise unknown_name("shift", each.name, (*GROUPS, *GROUPS["all"]))
            asked.setdefault(each.name, set()).add(each.severity or 0)
    return {name: tuple(sorted(asked[name])) for name in GROUPS["all"] if name in asked}


def _labels(source: ImageSource) -> Tensor | None:
    """Known labels, or the indices of the class folders in their sorted order."""
    if source.labels is not None or not source.class_names:
        return source.labels
    return labels_of_paths(source.names, ClassList(tuple(source.class_names)))[0]


def _in_threads(
    write: Callable[[_Rows], int], chunks: Sequence[_Rows], cores: int
) -> Iterator[int]:
    """What ``write`` returns for each chunk."""
    with _one_torch_thread(), ThreadPoolExecutor(cores) as pool:
        # In portions, so that an interrupt is quick.
        for first in range(0, len(chunks), 4 * cores):
            yield from pool.map(write, chunks[first : first + 4 * cores])


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """The workers are the parallelism; torch's own threads would only compete with them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Manifest:
    """The record beside the data, and the guard against mixing two data sets in one folder."""

    def __init__(
        self, out: Path, source: ImageSource, *, preset: Preset, seed: int, storage: str
    ) -> None:
        assert source.preprocessing is not None
        self._path, labels = out / _MANIFEST, _labels(source)
        self._record: dict[str, Any] = {
            "format": _FORMAT,
            "acclimate": __version__,
            "preset": preset,
            "seed": seed,
            "images": len(source),
            "source": source.fingerprint(),
            "labels": None if labels is None else digest([labels.numpy().tobytes()]),
            "classes": None if source.class_names is None else list(source.class_names),
            "prepared": source.preprocessing.describe(),
            "storage": storage,
            "constants": {},
            "finished": {},
        }
        if not self._path.exists():
            return
        try:
            there = read_object(
                self._path, *_IDENTITY, "constants", "finished", hint="; choose another folder"
            )
            differing = [key for key in _IDENTITY if there[key] != self._record[key]]
            kept = {
                "constants": {name: dict(each) for name, each in dict(there["constants"]).items()},
                "finished": {
                    name: list(map(int, each)) for name, each in dict(there["finished"]).items()
                },
            }
        except (ValueError, TypeError, OverflowError) as error:
            message = f"{self._path} cannot be read: {error!r}; choose another folder"
            raise AcclimateError(message) from error
        if differing:
            key = differing[0]
            raise AcclimateError(
                f"{out} was made with {_IDENTITY[key]} {there[key]}, now it is "
                f"{self._record[key]}; choose another folder, or remove that one"
            )
        self._record |= kept

    def start(self, shifts: dict[str, tuple[int, ...]]) -> None:
        """Note the constants of what is about to be made, and write the manifest."""
        for name, severities in shifts.items():
            noted = self._record["constants"].setdefault(named_in_results(name), {})
            for severity in severities:
                noted[str(severity)] = constants(name, severity, preset=self._record["preset"])
        self._write()

    def finish(self, name: str, severity: int) -> None:
        """Note that a part is complete. A record for people: what is there is seen on the disk."""
        finished, known = self._record["finished"], named_in_results(name)
        finished[known] = sorted({*finished.get(known, []), severity})
        self._write()

    def _write(self) -> None:
        write_files({self._path: json_writer(self._record)})


class _JpegStore:
    """ImageNet-C: ``fog/3/n01440764/name.JPEG``, quality 85; written in any order and thread."""

    storage = f"JPEG, quality {JPEG_QUALITY}"

    def __init__(self, out: Path, source: ImageSource, *, shifts: object) -> None:
        self._out = out
        self._files = _jpeg_files(source)

    def missing(self, name: str, severity: int) -> _Rows:
        """The indices of the images without a file."""
        folder = self._folder(name, severity)
        there = {
            os.path.relpath(os.path.join(path, file), folder)
            for path, _, files in os.walk(folder)
            for file in files
        }
        gone = [i for i, file in enumerate(self._files) if str(Path(file)) not in there]
        return np.array(gone, np.int64)

    def write(self, name: str, severity: int, rows: _Rows, images: NDArray[np.uint8]) -> None:
        """A file for each image N×H×W×C; a process that is killed leaves none half written."""
        for row, pixels in zip(rows, images, strict=True):
            path = self._folder(name, severity) / self._files[row]
            _make_within(self._out, path.parent)
            partial = path.with_name(f".{path.name}.partial")
            image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
            try:
                image.save(partial, "JPEG", quality=JPEG_QUALITY)
                os.replace(partial, path)
            finally:
                partial.unlink(missing_ok=True)

    def finish(self, name: str, severity: int) -> None:
        """Nothing is left to do: each file is whole."""

    def _folder(self, name: str, severity: int) -> Path:
        return self._out / named_in_results(name) / str(severity)


def _make_within(out: Path, folder: Path) -> None:
    """Make a folder and those above it, but not ``out``: were it removed, its record would be too.

    Images without a manifest are refused by the next call.
    """
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        if folder.parent == out:
            raise
        _make_within(out, folder.parent)
        folder.mkdir(exist_ok=True)


def _jpeg_files(source: ImageSource) -> list[str]:
    """A file for each image: by its own name, or by its index in the folder of its label."""
    own = [PurePosixPath(plain_name("file of an image", name)) for name in source.names]
    if all(path.suffix.lower() in EXTENSIONS for path in own):
        stems = [str(path.with_suffix("")) for path in own]
        # a.png and a.jpg would both become a.JPEG
        taken = Counter(stem.casefold() for stem in stems)
        return [f"{stem}.JPEG" for stem in (stems if max(taken.values()) == 1 else source.names)]
    digits = len(str(len(source)))
    files = [f"{index:0{digits}}.JPEG" for index in range(len(source))]
    if source.labels is None:
        return files
    labelled = zip(source.labels.tolist(), files, strict=True)
    # What has no label lies outside all class folders, and is read back so.
    return [file if label < 0 else f"{label}/{file}" for label, file in labelled]


class _ArrayStore:
    """CIFAR-10-C: ``fog.npy`` of five severities in a row, and ``labels.npy`` for them.

    Single severities go to ``fog-3.npz`` with images and labels, which has no place in that layout
    but can be used anywhere images are taken.
    """

    storage = "npy, raw uint8"

    def __init__(
        self, out: Path, source: ImageSource, *, shifts: dict[str, tuple[int, ...]]
    ) -> None:
        assert source.preprocessing is not None
        channels, height, width = source.preprocessing.shape
        self._out, self._count, self._shape = out, len(source), (height, width, channels)
        self._whole = {name for name, each in shifts.items() if len(each) == len(SEVERITIES)}
        labels = _labels(source)
        self._labels = {} if labels is None else {"labels": labels.numpy()}
        self._growing: dict[Path, _GrowingArray] = {}
        if self._labels and self._whole:
            rows = np.tile(self._labels["labels"], len(SEVERITIES))
            write_files({out / "labels.npy": lambda path: _save(path, np.save, rows)})

    def missing(self, name: str, severity: int) -> _Rows:
        """The indices of the images that were not written."""
        final, start = self._place(name, severity)
        if final.exists():
            return np.zeros(0, np.int64)
        if final not in self._growing:
            rows = self._count * (len(SEVERITIES) if name in self._whole else 1)
            self._growing[final] = _GrowingArray(final, (rows, *self._shape))
        return np.flatnonzero(self._growing[final].flags[start : start + self._count] == 0)

    def write(self, name: str, severity: int, rows: _Rows, images: NDArray[np.uint8]) -> None:
        """Fill rows N×H×W×C; they count as written once they are on the disk."""
        final, start = self._place(name, severity)
        growing = self._growing[final]
        for array, values in ((growing.pixels, images), (growing.flags, 1)):
            array[start + rows] = values
            array.flush()

    def finish(self, name: str, severity: int) -> None:
        """Give the array its name once all its rows are there."""
        final, _ = self._place(name, severity)
        growing = self._growing.get(final)
        if growing is None or not growing.flags.all():  # there before, or severities are to come
            return
        if final.suffix == ".npz":
            arrays = {"images": growing.pixels, **self._labels}
            write_files({final: lambda path: _save(path, np.savez, **arrays)})
        else:
            os.replace(growing.part, final)
        growing.remove()
        del self._growing[final]

    def _place(self, name: str, severity: int) -> tuple[Path, int]:
        """The file a part lies in, and its first row there."""
        known = named_in_results(name)
        if name in self._whole:
            return self._out / f"{known}.npy", (severity - 1) * self._count
        return self._out / f"{known}-{severity}.npz", 0


def _save(path: Path, save: Callable[..., None], *array: Any, **arrays: Any) -> None:
    with path.open("wb") as file:  # given a path, numpy would add an ending to it
        save(file, *array, **arrays)


class _GrowingArray:
    """A .npy file under construction, and beside it one flag for each row that is on the disk."""

    def __init__(self, final: Path, shape: tuple[int, ...]) -> None:
        self.part = final.with_name(f".{final.name}.part")
        self._rows = final.with_name(f".{final.name}.rows")
        pixels, flags = _reopened(self.part, shape), _reopened(self._rows, shape[:1])
        if pixels is None or flags is None:  # one without the other is worth nothing
            self.remove()
            pixels, flags = _created(self.part, shape), _created(self._rows, shape[:1])
        self.pixels, self.flags = pixels, flags

    def remove(self) -> None:
        """Remove what is still called as under construction."""
        self.part.unlink(missing_ok=True)
        self._rows.unlink(missing_ok=True)


def _reopened(path: Path, shape: tuple[int, ...]) -> np.memmap | None:
    """The array of a file, if there is one, it is whole and of this shape."""
    try:
        array = np.lib.format.open_memmap(path, mode="r+")
    except (OSError, ValueError):
        return None
    return array if array.shape == shape and array.dtype == np.uint8 else None


def _created(path: Path, shape: tuple[int, ...]) -> np.memmap:
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):
        # Claim the space now: a mapped file that meets a full disk later kills the process.
        try:
            with path.open("rb+") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError:
            path.unlink()
            raise
    return array
