"""Corrupt a whole set to disk: on all cores, with a bar, going on where it was stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from acclimate.data.base import ImageSource
from acclimate.data.corrupted.choice import choose_shifts
from acclimate.data.corrupted.lock import alone_in
from acclimate.data.corrupted.manifest import Manifest, check_folder
from acclimate.data.corrupted.stores import ArrayStore, JpegStore, Store
from acclimate.data.corruptions import PRESETS, Preset, corrupt_numbered
from acclimate.data.labels import ClassList, labels_of_paths
from acclimate.data.shift import check_sides
from acclimate.errors import AcclimateError, unknown_name

__all__ = ["Written", "check_call", "write_corrupted"]

_VALUES_AT_ONCE = 2**23


@dataclass(frozen=True)
class Written:
    """What a call made: how many pictures now, and how many were there before."""

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
        source: clean uint8 pictures, from `open_images`.
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
        raise AcclimateError("expected uint8 pictures to corrupt, got float model input")
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
    """Refuse what can be refused before a picture is read."""
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
        """Make what is missing; how many pictures that was."""
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
            images = corrupt_numbered(
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
