"""A worker: turns one job after the other into results, and keeps what the next one can use."""

from __future__ import annotations

import gc
import platform
import sys
import time
import traceback
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy
import torch
from torch import nn

from acclimate._version import __version__
from acclimate.adaptation.adapt import adapt
from acclimate.bench.images import ImageCache, Opened, noted_warnings
from acclimate.bench.job import UNADAPTED, Job, Weights
from acclimate.bench.record import Forgetting, Record, Result
from acclimate.bench.scoring import (
    Evaluation,
    adapted_record,
    evaluate,
    evaluated_record,
    forgetting,
    want_labels,
)
from acclimate.bench.streaming import Met, streamed_record
from acclimate.checkpoint import fingerprint
from acclimate.data.benchmarks import check_classes_fit, find_dataset
from acclimate.errors import AcclimateError
from acclimate.methods.registry import get_recipe
from acclimate.metrics import ErrorCounts
from acclimate.models import LoadedModel, load, want_trained
from acclimate.models.device import choose_device
from acclimate.models.filling import ClassCountError
from acclimate.presets import tuned_recipe
from acclimate.text import Score, Speed

__all__ = ["OUT_OF_MEMORY", "Worker", "machine", "peak"]

OUT_OF_MEMORY = "out of memory"
"""How the note of a result begins that had to do with smaller batches."""


def machine(device: torch.device) -> dict[str, Any]:
    """Device and versions, for the record."""
    versions = {
        "acclimate": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
    name = device.type
    if device.type == "cuda":
        name = f"cuda: {torch.cuda.get_device_name(device)}"
        versions["cuda"] = str(torch.version.cuda)
    return {"device": name, "threads": torch.get_num_threads(), "versions": versions}


def forget_peak(device: torch.device) -> None:
    """Begin to measure anew, where that can be done."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> dict[str, Any]:
    """Bytes at the peak, and of what: on the CPU only the process as a whole is known."""
    if device.type == "cuda":
        bytes_ = torch.cuda.max_memory_allocated(device)
        return {"memory": bytes_, "memory_of": "this job's tensors on the GPU"}
    if sys.platform == "win32":
        return {"memory": None}
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    bytes_ = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"memory": bytes_, "memory_of": "the process since it began, with jobs before this one"}


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on a GPU or not.

    >>> out_of_memory(MemoryError()), out_of_memory(RuntimeError("shapes differ"))
    (True, False)
    """
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    words = str(error)
    if isinstance(error, RuntimeError) and (
        "out of memory" in words or "can't allocate memory" in words
    ):
        return True
    return error.__cause__ is not None and out_of_memory(error.__cause__)


def breaks_device(error: BaseException) -> bool:
    """Whether nothing more can be run in this process: CUDA does not recover from such errors.

    Also where one of ours, which says on what the model failed, was raised from it.
    """
    found = isinstance(error, RuntimeError) and "CUDA error" in str(error)
    return found or (error.__cause__ is not None and breaks_device(error.__cause__))


def free_memory() -> None:
    """Give back what a failed attempt has left."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class ModelCache:
    """Loads the models of jobs onto a device, and keeps the last one.

    Attributes:
        fingerprint: a checksum of the last one's weights.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.fingerprint = device, ""
        self._last: tuple[tuple[str, Weights | None], LoadedModel] | None = None

    def put(self, job: Job, loaded: LoadedModel) -> None:
        """Take a model that was loaded before for that of a job."""
        loaded = replace(loaded, model=loaded.model.to(self.device))
        self.fingerprint = fingerprint(loaded.model.state_dict())
        self._last = (job.model, job.weights), loaded

    def load(self, job: Job) -> LoadedModel:
        """The model of a job, filled with its weights."""
        key = (job.model, job.weights)
        if self._last is None or self._last[0] != key:
            self._last = None  # before the next one takes its memory
            _check_weights(job.weights)
            file = None if job.weights is None else job.weights.path
            want_trained(job.model, file)
            self.put(job, _loaded(job, file))
        assert self._last is not None
        return self._last[1]


def _loaded(job: Job, file: str | None) -> LoadedModel:
    """A model filled from a file, made for as many classes as the file and the data set have.

    One that was trained anew for the data set has other images behind it than its library's
    record tells: it takes them as the data set has them.
    """
    try:
        return load(job.model, weights=file)
    except ClassCountError as error:
        if error.count != find_dataset(job.dataset).classes:
            raise
        return replace(load(job.model, weights=file, num_classes=error.count), preprocessing=None)


def _check_weights(weights: Weights | None) -> None:
    """A result is kept by what the file held when the plan was made."""
    if weights is None:
        return
    now = Weights.of(weights.path)
    if now != weights:
        raise AcclimateError(
            f"the weights file {weights.path} is another than when the plan was made (sha256 "
            f"{now.sha256[:12]}, then {weights.sha256[:12]}); put it back, or make the plan anew"
        )


Attempt: TypeAlias = Callable[[int | None], Record]
"""To run a job with batches of this size, or of the size it would take."""

_EVALUATED_AT_ONCE = 128


class Worker:
    """Runs jobs. The last model and the last images are kept: jobs that share them are cheap.

    Args:
        roots: where each data set lies; "clean" is where to measure forgetting, if not on it.
        device: where to run; None is CUDA when there is one, else the CPU.
        incomplete: continue, with a note in the result, where a data set is not whole.
        cache: bytes of images to keep in memory; None is a third of what is free.
        score: predictions after all "epochs" of a run, or at its "end" alone.
        speed: as in `acclimate.adapt`; None is "auto" on a GPU and "exact" on a CPU, where "auto"
            takes what a clock finds faster, and the same job may end in other numbers.
        smallest_batch: how far batches are halved when memory runs out.
        progress: show bars on stderr.
        rescore: score adapted models once more, in a pass that counts top-5 errors too.

    Attributes:
        broken: whether a job left the device unusable for this process (CUDA errors do).

    >>> worker = Worker(roots={}, device="cpu")
    >>> job = Job(model="acclimate:digits", dataset="mnist", recipe="ent")
    >>> result = worker.run(job)  # nobody said where MNIST lies
    >>> result.status, result.message.splitlines()[0]
    ('failed', 'mnist needs a root, the folder it lies in')
    """

    def __init__(
        self,
        roots: Mapping[str, str | Path],
        *,
        device: str | torch.device | None = None,
        incomplete: bool = False,
        cache: int | None = None,
        score: Score = "epochs",
        speed: Speed | None = None,
        smallest_batch: int = 8,
        progress: bool = False,
        rescore: bool = False,
    ) -> None:
        if smallest_batch < 1:
            raise AcclimateError(f"expected smallest_batch >= 1, got {smallest_batch}")
        self.device = choose_device(device)
        if self.device.type == "cuda" and self.device.index is not None:
            torch.cuda.set_device(self.device)
        self.score, self.smallest_batch, self.rescore = score, smallest_batch, rescore
        self.speed: Speed = speed or ("exact" if self.device.type == "cpu" else "auto")
        self.progress, self.broken = progress, False
        self.images = ImageCache(
            roots, device=self.device, incomplete=incomplete, cache=cache, progress=progress
        )
        self.models = ModelCache(self.device)
        self._clean: tuple[Hashable, ErrorCounts] | None = None

    def run(self, job: Job, *, halvings: int = 0) -> Result:
        """The result of a job; a failed one, with the reason, where there is no other.

        ``halvings`` of the batch come before the first attempt: processes before this one were
        killed with it.
        """
        try:
            return self._run(job, halvings)
        except AcclimateError as error:
            self.broken = breaks_device(error)
            return Result.failed(job, str(error))
        except Exception as error:  # one broken job must not take the sweep with it
            self.broken = breaks_device(error)
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            return Result.failed(job, f"{type(error).__name__}: {error} ({place})")

    def _run(self, job: Job, halvings: int) -> Result:
        began = time.perf_counter()
        loaded = self.models.load(job)
        met: Met | None = None
        if job.setting is None:
            opened = self.images.shifted(job, loaded)
        else:
            opened, met = self.images.met(job, loaded)
        with noted_warnings() as unlike:
            check_classes_fit(find_dataset(job.dataset), opened.images, loaded.classes)
        loading = time.perf_counter() - began
        forget_peak(self.device)
        attempt = partial(self._attempt, job, loaded, opened)
        if met is not None:
            attempt = partial(self._stream, job, loaded, met)
        found = self._with_less_memory(job, loaded, len(opened.images), attempt, halvings)
        preprocessing = opened.images.preprocessing
        record = replace(
            found,
            data=opened.data,
            weights=self.models.fingerprint,
            preprocessing=preprocessing.describe() if preprocessing else None,
            loading_seconds=round(loading, 3),
            corruption=None if opened.corruption == job.corruption else opened.corruption,
            unlike_classes=unlike[0] if unlike else None,
            notes=(*opened.notes, *unlike, *found.notes),
            **machine(self.device),
            **peak(self.device),
        )
        return Result(job=job, record=record.stored())

    def _with_less_memory(
        self, job: Job, loaded: LoadedModel, images: int, attempt: Attempt, halvings: int
    ) -> Record:
        """Run a job; where memory runs out, again with half the batch, down to the smallest."""
        size = job.batch_size
        notes: list[str] = []
        if halvings:
            asked = _batch_size(job, loaded, images)
            size = max(self.smallest_batch, asked >> halvings)
            notes.append(_smaller(job, asked, size, by="by all signs, its process was killed, "))
        while True:
            try:
                began = time.perf_counter()
                found = attempt(size)
                seconds = round(time.perf_counter() - began, 3)
                return replace(found, seconds=seconds, notes=(*notes, *found.notes))
            except Exception as error:
                if not out_of_memory(error):
                    raise
                tried = size or _batch_size(job, loaded, images)
                size = tried // 2
                if size < self.smallest_batch:
                    raise AcclimateError(
                        f"out of memory with batches of {tried}, and {self.smallest_batch} is the "
                        f"least that is tried; {str(error).splitlines()[0] if str(error) else ''}"
                    ) from error
            # Outside of the handler, where the error no longer holds on to the tensors.
            notes.append(_smaller(job, tried, size))
            free_memory()

    def _attempt(self, job: Job, loaded: LoadedModel, opened: Opened, size: int | None) -> Record:
        images, classes = opened.images, loaded.classes
        if job.recipe == UNADAPTED:
            used = size or _EVALUATED_AT_ONCE
            scores = self._evaluate(loaded.model, opened, used)
            return replace(evaluated_record(scores, images, classes), batch_size=used)
        # First, since a mistake in these must not cost an adaptation.
        if self.rescore:
            want_labels(images)
        clean = self.images.clean(job, loaded) if job.forgetting else None
        with noted_warnings() as warned:
            result = adapt(
                loaded,
                images,
                job.recipe,
                options=dict(job.options),
                batch_size=size,
                score=self.score,
                estimate=False,  # labels tell
                guard="observe",  # collapse has to show in a table, not be mended
                device=self.device,
                seed=job.seed,
                speed=self.speed,
                progress=self.progress,
            )
        asked, again = images.scoring, None
        # The run's confidences are over all outputs, those of the score may be over some of them.
        subset = asked is not None and asked.label_of is None and images.labels is not None
        # Where no plain model has a recipe's predictions, there is none to score.
        if result.recipe.exports and (self.rescore or subset):
            again = self._evaluate(result.model, opened, size or result.record.batch_size)
        record = adapted_record(result, images, classes, again=again)
        if clean is not None:
            lost = self._forgetting(clean, loaded, result.model, result.record.batch_size)
            record = replace(record, forgetting=lost)
        partly = self.score == "end" and len(record.errors.after_epoch) > 1
        notes = (*record.notes, *warned)
        return replace(record, notes=notes, score="end" if partly else None)

    def _stream(self, job: Job, loaded: LoadedModel, met: Met, size: int | None) -> Record:
        with noted_warnings() as warned:
            record = streamed_record(
                job,
                loaded,
                met,
                device=self.device,
                batch_size=size,
                speed=self.speed,
                progress=self.progress,
            )
        return replace(record, notes=(*record.notes, *warned))

    def _evaluate(
        self, model: nn.Module, opened: Opened, size: int, *, title: str = "evaluate"
    ) -> Evaluation:
        return evaluate(
            model,
            opened.images,
            batch_size=size,
            device=self.device,
            progress=self.progress,
            title=title,
        )

    def _forgetting(
        self, clean: Opened, loaded: LoadedModel, adapted: nn.Module, size: int
    ) -> Forgetting:
        """What is lost on clean images; the source model is scored once for jobs in a row."""
        key = (self.models.fingerprint, clean.data)
        if self._clean is None or self._clean[0] != key:
            self._clean = key, self._evaluate(loaded.model, clean, size, title="clean").errors
        lost = forgetting(
            self._clean[1],
            adapted,
            clean.images,
            batch_size=size,
            device=self.device,
            progress=self.progress,
        )
        return replace(lost, data=clean.data)


def _smaller(job: Job, tried: int, size: int, *, by: str = "") -> str:
    rate = "" if job.recipe == UNADAPTED else "; the learning rate follows linearly"
    return f"{OUT_OF_MEMORY} {by}with batches of {tried}, tried {size} instead{rate}"


def _batch_size(job: Job, loaded: LoadedModel, images: int) -> int:
    """What an attempt without a word about it takes."""
    if job.batch_size is not None:
        return min(job.batch_size, images)
    if job.recipe == UNADAPTED and job.setting is None:
        return _EVALUATED_AT_ONCE
    recipe, _ = tuned_recipe(
        get_recipe(job.recipe),
        dict(job.options),
        model_name=loaded.name,
        images=images,
        model=loaded.model,
        classes=loaded.class_count,
    )
    return min(recipe.batch_size, images)
