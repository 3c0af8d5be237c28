"""The images of the last job, so that the next one on the same shift need not make them again."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from acclimate.data import ImageSource, Preprocessing
from acclimate.data.base import digest
from acclimate.data.benchmarks import find_dataset, open_dataset
from acclimate.data.memory import cache_budget
from acclimate.data.shift import Shift, ShiftedSource
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.evaluation import dataset_parts
from acclimate.experiments._first_images import first_images
from acclimate.experiments.job import Job

__all__ = ["ImageCache", "Opened"]

_CHUNK = 256
# Data sets of shifts alone: where the images they were made of are.
_CLEAN = {"cifar10-c": "cifar10", "imagenet-c": "imagenet"}


@dataclass(frozen=True, kw_only=True)
class Opened:
    """The images of a job, a digest over them and their labels, and what is to be said of them."""

    images: ImageSource
    data: str
    corruption: str | None
    notes: tuple[str, ...]


class ImageCache:
    """Opens the images of jobs, and keeps those of the last one, and the clean ones below them.

    Args:
        roots: where each data set lies.
        device: where corruptions are made.
        incomplete: go on, with a note, where a data set is not whole.
        cache: bytes of pictures to keep in memory, of each kind; None is a third of what is free.
        progress: show bars on stderr.
    """

    def __init__(
        self,
        roots: Mapping[str, str | Path],
        *,
        device: torch.device,
        incomplete: bool = False,
        cache: int | None = None,
        progress: bool = False,
    ) -> None:
        self.roots, self.device, self.incomplete = dict(roots), device, incomplete
        self.cache, self.progress = cache, progress
        self._dataset: str | None = None
        self._last: dict[str, tuple[Hashable, Opened]] = {}

    def shifted(self, job: Job, preprocessing: Preprocessing | None) -> Opened:
        """The images a job adapts to."""
        if job.dataset != self._dataset:  # nothing of another one will be asked for again soon
            self._dataset = job.dataset
            self._last.clear()
        if find_dataset(job.dataset).shifts:
            return self._kept("own", job, job.dataset, job.shift, preprocessing)
        clean = self._kept("clean", job, job.dataset, None, preprocessing)
        if job.shift is None:
            return clean
        key = (self._last["clean"][0], job.shift)
        if self._is_last("made", key):
            return self._last["made"][1]
        self._last.pop("made", None)  # before the next one takes its memory
        opened = self._made(clean, Shift.parse(job.shift))
        self._last["made"] = key, opened
        return opened

    def clean(self, job: Job, preprocessing: Preprocessing | None) -> Opened:
        """The images of a job before the shift, to measure forgetting on."""
        own = bool(find_dataset(job.dataset).shifts)
        name = _CLEAN.get(job.dataset) if own else job.dataset
        if name is None or name not in self.roots:
            needed = f"; {name} beside it, with its root, has them" if name else ""
            raise AcclimateError(
                f"forgetting is measured on clean images, and {job.dataset} has none{needed}"
            )
        return self._kept("clean", job, name, None, preprocessing)

    def _is_last(self, kind: str, key: Hashable) -> bool:
        return kind in self._last and self._last[kind][0] == key

    def _kept(
        self,
        kind: str,
        job: Job,
        dataset: str,
        shift: str | None,
        preprocessing: Preprocessing | None,
    ) -> Opened:
        key = (dataset, job.split, shift, job.images, preprocessing)
        if not self._is_last(kind, key):
            self._last.pop(kind, None)
            self._last[kind] = key, self._open(job, dataset, shift, preprocessing)
        return self._last[kind][1]

    def _open(
        self, job: Job, dataset: str, shift: str | None, preprocessing: Preprocessing | None
    ) -> Opened:
        if dataset not in self.roots:
            how = find_dataset(dataset).how_to_get(Path("ROOT"))
            raise AcclimateError(f"{dataset} needs a root, the folder it lies in\n{how}")
        root = Path(self.roots[dataset]).expanduser()
        split = job.split if dataset == job.dataset else None
        severity, corruption = None, None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if shift is not None:  # also finds what stands in for it: frost-procedural for frost
                part = dataset_parts(
                    dataset,
                    root,
                    [shift],
                    split=split,
                    incomplete=self.incomplete,
                    progress=False,
                )[0]
                corruption, severity = part.shift, part.severity
            source = open_dataset(
                dataset,
                root,
                split=split,
                shift=corruption,
                severity=severity,
                preprocessing=preprocessing,
                cache=self.cache,
                progress=self.progress,
                incomplete=self.incomplete,
            )
        said = dict.fromkeys(
            str(each.message) for each in caught if issubclass(each.category, AcclimateWarning)
        )
        images, notes = first_images(source, job.images)
        return Opened(
            images=images, data=_digest(images), corruption=corruption, notes=(*said, *notes)
        )

    def _made(self, clean: Opened, shift: Shift) -> Opened:
        budget = cache_budget(self.cache)
        images = ShiftedSource(clean.images, shift, cache=budget, device=self.device)
        assert images.preprocessing is not None
        if len(images) * math.prod(images.preprocessing.shape) <= budget:
            # All at once, so that no job's time has the corruption of what others find made.
            for chunk in tqdm(
                torch.arange(len(images)).split(_CHUNK),
                desc=str(shift),
                delay=1,
                leave=False,
                disable=not self.progress,
            ):
                images.read(chunk)
        return Opened(images=images, data=_digest(images), corruption=shift.kind, notes=clean.notes)


def _digest(images: ImageSource) -> str:
    labels = b"" if images.labels is None else images.labels.numpy().tobytes()
    return digest([images.fingerprint().encode(), labels])
