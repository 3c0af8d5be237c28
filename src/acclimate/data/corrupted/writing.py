"""Corrupt a whole set to disk: on all cores, with a bar, going on where it was stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from acclimate._version import __version__
from acclimate.data.base import ImageSource, digest
from acclimate.data.corrupted.stores import ArrayStore, JpegStore, Store
from acclimate.data.corruptions import (
    DEV,
    PRESETS,
    SEVERITIES,
    TEST,
    Preset,
    constants,
    corrupt_indexed,
    named_in_results,
)
from acclimate.data.labels import ClassList, labels_of_paths
from acclimate.data.shift import check_sides
from acclimate.errors import AcclimateError, unknown_name
from acclimate.files import held, json_writer, write_files

__all__ = [
    "MANIFEST",
    "Manifest",
    "Written",
    "alone_in",
    "check_call",
    "check_folder",
    "choose_shifts",
    "write_corrupted",
]

_GROUPS = {"all": (*TEST, *DEV), "dev": DEV, "test": TEST}


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
        if "/" in word:
            raise AcclimateError(
                f"expected all, dev, test, NAME or NAME:SEVERITY, got {word!r}; the preset has an "
                "option of its own"
            )
        name, colon, severity = word.partition(":")
        for each in _GROUPS.get(name, (name,)):
            if each not in _GROUPS["all"]:
                raise unknown_name("shift", each, (*_GROUPS, *_GROUPS["all"]))
            asked.setdefault(each, set()).update(_severities(word, severity if colon else None))
    return {name: tuple(sorted(asked[name])) for name in _GROUPS["all"] if name in asked}


def _severities(word: str, severity: str | None) -> tuple[int, ...]:
    if severity is None:
        return SEVERITIES
    if severity not in map(str, SEVERITIES):
        raise AcclimateError(f"expected a severity of 1, 2, 3, 4 or 5, got {word!r}")
    return (int(severity),)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder, and refuse where another process does."""
    with held(folder) as mine:
        if not mine:
            raise AcclimateError(
                f"another process is writing to {folder}; wait for it, or choose another folder"
            )
        yield


MANIFEST = "manifest.json"
FORMAT = 1
"""Raised when the same call would write other images, so that the two are not mixed."""

# What has to be the same for two calls to add to one data set, and what to call it.
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


def check_folder(out: Path) -> None:
    """Refuse a place that holds something else, before any work is done."""
    try:
        foreign = out.exists() and not (out / MANIFEST).exists() and any(out.iterdir())
    except NotADirectoryError:
        raise AcclimateError(f"expected a folder to write to, but {out} is a file") from None
    if foreign:
        raise AcclimateError(
            f"{out} is not empty and has no {MANIFEST}, so it was not made by acclimate corrupt; "
            "choose another folder"
        )


class Manifest:
    """The record beside the data, and the guard against mixing two data sets in one folder."""

    def __init__(
        self,
        out: Path,
        *,
        preset: Preset,
        seed: int,
        source: ImageSource,
        labels: Tensor | None,
        classes: Sequence[str] | None,
        storage: str,
    ) -> None:
        self._path = out / MANIFEST
        self._record: dict[str, Any] = {
            "format": FORMAT,
            "acclimate": __version__,
            "preset": preset,
            "seed": seed,
            "images": len(source),
            "source": source.fingerprint(),
            "labels": None if labels is None else digest([labels.numpy().tobytes()]),
            "classes": None if classes is None else list(classes),
            "prepared": source.preprocessing.describe() if source.preprocessing else None,
            "storage": storage,
            "constants": {},
            "finished": {},
        }
        if self._path.exists():
            self._take_over(out)

    def _take_over(self, out: Path) -> None:
        try:
            there = json.loads(self._path.read_text(encoding="utf-8"))
            differing = [key for key in _IDENTITY if there[key] != self._record[key]]
            kept = {key: dict(there[key]) for key in ("constants", "finished")}
        except (OSError, ValueError, KeyError, TypeError) as error:
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
        finished = self._record["finished"]
        done = finished.get(named_in_results(name), [])
        finished[named_in_results(name)] = sorted({*done, severity})
        self._write()

    def _write(self) -> None:
        write_files({self._path: json_writer(self._record)})


_VALUES_AT_ONCE = 2**23


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
    the five severities in a row and ``labels.npy``. The same call goes on where it was stopped;
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
    out = Path(out).expanduser()
    check_call(out, preset=preset, shifts=shifts, seed=seed, workers=workers)
    if source.preprocessing is None:
        raise AcclimateError("expected uint8 images to corrupt, got float model input")
    check_sides(source.preprocessing)
    chosen = choose_shifts(shifts)
    channels, height, width = source.preprocessing.shape
    labels = _labels(source)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with alone_in(out):
            manifest = Manifest(
                out,
                preset=preset,
                seed=seed,
                source=source,
                labels=labels,
                classes=source.class_names,
                storage=(JpegStore if preset == "imagenet" else ArrayStore).storage,
            )
            manifest.start(chosen)
            store: Store = (
                JpegStore(out, source)
                if preset == "imagenet"
                else ArrayStore(
                    out,
                    count=len(source),
                    shape=(height, width, channels),
                    labels=labels,
                    shifts=chosen,
                )
            )
            job = _Job(source, store, manifest, preset, seed, workers or os.cpu_count() or 1)
            total = len(source) * sum(map(len, chosen.values()))
            with tqdm(total=total, unit="image", disable=not progress, smoothing=0) as bar:
                made = job.run(chosen, bar)
    except OSError as error:
        raise AcclimateError(
            f"could not write to {out}: {error.strerror or error}; what is there is kept, and the "
            "same call goes on from it"
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
    check_folder(out)


def _labels(source: ImageSource) -> Tensor | None:
    """Known labels, or the numbers of the class folders in their sorted order."""
    if source.labels is not None or not source.class_names:
        return source.labels
    return labels_of_paths(source.names, ClassList(tuple(source.class_names)))[0]


@dataclass(frozen=True)
class _Job:
    source: ImageSource
    store: Store
    manifest: Manifest
    preset: Preset
    seed: int
    cores: int

    def run(self, chosen: dict[str, tuple[int, ...]], bar: tqdm) -> int:
        """Make what is missing; how many images that was."""
        made = 0
        with _one_thread_each(), ThreadPoolExecutor(self.cores) as pool:
            for name, severity in ((name, s) for name, each in chosen.items() for s in each):
                bar.set_description(f"{name}:{severity}")
                missing = self.store.missing(name, severity)
                bar.update(len(self.source) - len(missing))
                tasks = (self._task(name, severity, some) for some in self._portions(missing))
                for count in _finished(pool, tasks, at_once=2 * self.cores):
                    made += count
                    bar.update(count)
                self.store.finish(name, severity)
                self.manifest.finish(name, severity)
        return made

    def _portions(self, missing: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        assert self.source.preprocessing is not None
        size = max(1, _VALUES_AT_ONCE // int(np.prod(self.source.preprocessing.shape)))
        # At least one for each core; and never an empty one.
        pieces = min(len(missing), max(-(-len(missing) // size), self.cores))
        return np.array_split(missing, pieces) if pieces else []

    def _task(self, name: str, severity: int, some: NDArray[np.int64]) -> Callable[[], int]:
        def make() -> int:
            numbers = torch.from_numpy(some)
            clean = self.source.read(numbers)
            images = corrupt_indexed(
                clean, numbers, name, severity, preset=self.preset, seed=self.seed
            )
            pixels = images.permute(0, 2, 3, 1).numpy()
            self.store.write(name, severity, some, pixels)
            return len(some)

        return make


def _finished(
    pool: ThreadPoolExecutor, tasks: Iterable[Callable[[], int]], *, at_once: int
) -> Iterator[int]:
    """What tasks return, as they end. Few are handed in at once, so that an interrupt is quick."""
    running: set[Future[int]] = set()
    for task in tasks:
        running.add(pool.submit(task))
        if len(running) >= at_once:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    for future in running:
        yield future.result()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """The workers are the parallelism; torch's own threads would only get in their way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
