"""The images of the last job, so that the next one on the same shift need not make them again."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from acclimate.bench.job import SEQUENCES, ImageOrder, Job
from acclimate.bench.plan import MADE_FROM, root_of
from acclimate.bench.shifts import CLEAN, found_shift, job_shifts
from acclimate.bench.streaming import Met
from acclimate.data import ImageSource
from acclimate.data.base import JoinedSource, digest
from acclimate.data.benchmarks import find_dataset, open_dataset
from acclimate.data.benchmarks.own_images import FOLDER
from acclimate.data.corruptions import SEVERITIES
from acclimate.data.memory import cache_budget
from acclimate.data.shift import Shift
from acclimate.data.shifted import ShiftedSource, made_shift
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.models import LoadedModel
from acclimate.text import user_path

__all__ = ["ImageCache", "Opened", "few_images", "images_digest", "noted_warnings"]


class FewImages(ImageSource):
    """The first images of another source, or some spread over it; nothing is copied."""

    def __init__(self, source: ImageSource, count: int, *, spread: bool = False) -> None:
        numbers = torch.arange(count) * len(source) // count if spread else torch.arange(count)
        super().__init__(
            names=[source.names[number] for number in numbers.tolist()],
            labels=None if source.labels is None else source.labels[numbers],
            class_names=source.class_names,
            preprocessing=source.preprocessing,
            skipped=source.skipped,
            scoring=source.scoring,
        )
        self._source, self._numbers, self._spread = source, numbers, spread

    def read(self, indices: Tensor) -> Tensor:
        """The images of these indices."""
        return self._source.read(self._numbers[indices])

    def fingerprint(self) -> str:
        """A digest of the whole source's, and of how many are taken, and how."""
        taken = f"{len(self)}{' spread' if self._spread else ''}"
        return digest([self._source.fingerprint().encode(), taken.encode()])


def few_images(source: ImageSource, count: int | None) -> tuple[ImageSource, list[str]]:
    """At most ``count`` images (None: all), and warnings about them.

    They are the first ones, or spread over the source where the first hold far fewer classes: a
    folder is sorted by class, and a batch of one class is another problem than a batch of all.

    >>> from acclimate.data import open_images
    >>> sorted_by_class = open_images(torch.zeros(6, 3, 2, 2), labels=[0, 0, 1, 1, 2, 2])
    >>> images, notes = few_images(sorted_by_class, 2)
    >>> images.labels.tolist(), notes
    ([0, 1], ['2 of 6 images, spread over them, hold 2 of 3 classes'])
    """
    if count is None or count >= len(source):
        return source, []
    first, spread = FewImages(source, count), FewImages(source, count, spread=True)
    if source.labels is None:
        return first, []
    taken, how = first, "the first"
    if _classes(spread) >= 2 * _classes(first):  # by far, as it is where they are sorted
        taken, how = spread, "spread over them"
    held, of = _classes(taken), _classes(source)
    few = f"{count:,} of {len(source):,} images, {how}, hold {held:,} of {of:,} classes"
    return taken, [few] if held < of else []


def _classes(source: ImageSource) -> int:
    assert source.labels is not None
    return len(source.labels.unique())


@contextlib.contextmanager
def noted_warnings() -> Iterator[list[str]]:
    """What is warned of in the block, each once; there when it is left, and shown to nobody.

    >>> with noted_warnings() as notes:
    ...     warnings.warn("it rains", AcclimateWarning)
    ...     warnings.warn("it rains", AcclimateWarning)
    >>> notes
    ['it rains']
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AcclimateWarning)
        yield notes
    ours = (str(each.message) for each in caught if issubclass(each.category, AcclimateWarning))
    notes += dict.fromkeys(ours)


_CHUNK = 256


@dataclass(frozen=True, kw_only=True)
class Opened:
    """The images of a job, a digest over them and their labels, and warnings about them."""

    images: ImageSource
    data: str
    corruption: str | None
    notes: tuple[str, ...]


class ImageCache:
    """Opens the images of jobs, and keeps those of the last one, and the clean ones below them.

    Args:
        roots: where each data set lies.
        device: where corruptions are made.
        incomplete: continue, with a note, where a data set is not whole.
        cache: bytes of images to keep in memory, of each kind; None is a third of what is free.
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
        self._sequence: tuple[Hashable, Opened, Met] | None = None

    def shifted(self, job: Job, loaded: LoadedModel, *, cache: int | None = None) -> Opened:
        """The images a job adapts to; ``cache`` is what others have left for them, in bytes."""
        if job.dataset != self._dataset:  # nothing of another one will be asked for again soon
            self._dataset = job.dataset
            self._last.clear()
            self._sequence = None
        if find_dataset(job.dataset).shifts:
            return self._kept("own", job, job.dataset, job.shift, loaded, cache=cache)
        clean = self._kept("clean", job, job.dataset, None, loaded)
        if job.shift is None:
            return clean
        key = (self._last["clean"][0], job.shift)
        if self._is_last("made", key):
            return self._last["made"][1]
        self._last.pop("made", None)  # before the next one takes its memory
        opened = self._made(clean, made_shift(job.shift), cache=cache)
        self._last["made"] = key, opened
        return opened

    def met(self, job: Job, loaded: LoadedModel) -> tuple[Opened, Met]:
        """What a job in a setting meets: its shift, or all of its group in their turn."""
        assert job.setting is not None
        gradual = job.setting == "gradual"
        words = [job.shift] if not _is_group(job) else _members(job, gradual=gradual)
        key = (job.dataset, job.split, tuple(words), job.images, _prepared(job.dataset, loaded))
        if self._sequence is None or self._sequence[0] != key:
            self._sequence = None  # before the next one takes its memory
            parts: dict[str | None, Opened] = {}
            left = cache_budget(self.cache)  # for all of them together
            for word in dict.fromkeys(words):
                alone = replace(job, shift=word, setting=None)
                parts[word] = self.shifted(alone, loaded, cache=left)
                size = _bytes(parts[word].images)
                left -= size if size <= left else 0
            met = Met(
                images=JoinedSource([parts[word].images for word in words]),
                shifts=[str(parts[word].corruption or word) for word in words],
            )
            notes = dict.fromkeys(note for part in parts.values() for note in part.notes)
            opened = Opened(
                images=met.images,
                data=images_digest(met.images),
                corruption=job.corruption,
                notes=tuple(notes),
            )
            self._sequence = key, opened, met
        return self._sequence[1], self._sequence[2]

    def clean(self, job: Job, loaded: LoadedModel) -> Opened:
        """The images to measure forgetting on: those named for it, or those before the shift."""
        if CLEAN in self.roots:
            root = self.roots[CLEAN]
            opened = self._kept("source", job, FOLDER, None, loaded, root=root)
            if opened.images.labels is None:
                raise AcclimateError(
                    f"expected labelled clean images to measure forgetting on, got none in {root}; "
                    "put them into folders named by class"
                )
            return opened
        own = bool(find_dataset(job.dataset).shifts)
        name = MADE_FROM.get(job.dataset, (None,))[0] if own else job.dataset
        if name is None or name not in self.roots:
            needed = f"; {name} beside it, with its root, has them" if name else ""
            raise AcclimateError(
                f"forgetting is measured on clean images, and {job.dataset} has none{needed}"
            )
        return self._kept("clean", job, name, None, loaded)

    def _is_last(self, kind: str, key: Hashable) -> bool:
        return kind in self._last and self._last[kind][0] == key

    def _kept(
        self,
        kind: str,
        job: Job,
        dataset: str,
        shift: str | None,
        loaded: LoadedModel,
        *,
        cache: int | None = None,
        root: str | Path | None = None,
    ) -> Opened:
        count = job.images if root is None else None
        key = (dataset, job.split, shift, count, _prepared(dataset, loaded))
        if not self._is_last(kind, key):
            self._last.pop(kind, None)
            where = root_of(dataset, self.roots) if root is None else user_path(root)
            split = job.split if dataset == job.dataset else None
            opened = self._open(dataset, where, split, shift, count, loaded, cache)
            self._last[kind] = key, opened
        return self._last[kind][1]

    def _open(
        self,
        dataset: str,
        root: Path,
        split: str | None,
        shift: str | None,
        count: int | None,
        loaded: LoadedModel,
        cache: int | None,
    ) -> Opened:
        record = find_dataset(dataset)
        found = None if shift is None else found_shift(record, root, Shift.parse(shift))
        with noted_warnings() as warned:
            source = open_dataset(
                dataset,
                root,
                split=split,
                shift=None if found is None else found.name,
                severity=None if found is None else found.severity,
                preprocessing=loaded.preprocessing,
                classes=loaded.classes if record.classes is None else None,
                cache=self.cache if cache is None else cache,
                progress=self.progress,
                incomplete=self.incomplete,
            )
        images, notes = few_images(source, count)
        return Opened(
            images=images,
            data=images_digest(images),
            corruption=None if found is None else found.name,
            notes=(*warned, *notes),
        )

    def _made(self, clean: Opened, shift: Shift, *, cache: int | None) -> Opened:
        budget = cache_budget(self.cache if cache is None else cache)
        images = ShiftedSource(clean.images, shift, cache=budget, device=self.device)
        if _bytes(images) <= budget:
            # All at once, so that no job's time has the corruption of what others find made.
            for chunk in tqdm(
                torch.arange(len(images)).split(_CHUNK),
                desc=str(shift),
                delay=1,
                leave=False,
                disable=not self.progress,
            ):
                images.read(chunk)
        data = images_digest(images)
        return Opened(images=images, data=data, corruption=shift.name, notes=clean.notes)


def _prepared(dataset: str, loaded: LoadedModel) -> Hashable:
    """What the images and labels of a data set depend on in the model."""
    own = find_dataset(dataset).classes is None
    return (loaded.preprocessing, loaded.classes if own else None)


def _is_group(job: Job) -> bool:
    return ImageOrder.parse(job.setting or "").name in SEQUENCES


def _members(job: Job, *, gradual: bool) -> list[str | None]:
    """The shifts of a group, in the order in which a stream meets them."""
    assert job.shift is not None
    if not gradual:
        return job_shifts(job.dataset, [job.shift])
    rising = [Shift.parse(str(word)) for word in job_shifts(job.dataset, [job.shift])]
    if any(shift.severity is None for shift in rising):
        raise AcclimateError(f"the shifts of {job.dataset} have no severities to grow and fade by")
    wave = (*SEVERITIES, *reversed(SEVERITIES[:-1]))
    names = dict.fromkeys(replace(shift, severity=None) for shift in rising)
    return [str(replace(name, severity=severity)) for name in names for severity in wave]


def _bytes(images: ImageSource) -> int:
    """What the images take in memory."""
    record = images.preprocessing
    return 0 if record is None else len(images) * math.prod(record.shape)


def images_digest(images: ImageSource) -> str:
    """Over the images and their labels."""
    labels = b"" if images.labels is None else images.labels.numpy().tobytes()
    return digest([images.fingerprint().encode(), labels])
