"""A worker: turns one job after the other into results, and keeps what the next one can use."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch

from acclimate.adaptation import adapt
from acclimate.copying import choose_device
from acclimate.data.benchmarks import check_classes_fit, find_dataset
from acclimate.errors import AcclimateError
from acclimate.evaluation import Evaluation, evaluate, forgetting
from acclimate.experiments._heard import heard
from acclimate.experiments._image_cache import ImageCache, Opened
from acclimate.experiments._machine import (
    OUT_OF_MEMORY,
    breaks_device,
    forget_peak,
    free_memory,
    machine,
    out_of_memory,
    peak,
)
from acclimate.experiments._model_cache import ModelCache
from acclimate.experiments._records import adapted_record, evaluated_record
from acclimate.experiments._streaming import Met, streamed_record
from acclimate.experiments.job import UNADAPTED, Job
from acclimate.experiments.result import Result
from acclimate.metrics import ErrorCounts
from acclimate.models import LoadedModel
from acclimate.presets import tuned_recipe
from acclimate.recipes import get_recipe
from acclimate.words import Score, Speed

__all__ = ["Worker"]

Attempt: TypeAlias = Callable[[int | None], dict[str, Any]]
"""To run a job with batches of this size, or of the size it would take."""

_EVALUATED_AT_ONCE = 128


class Worker:
    """Runs jobs. The last model and the last images are kept: jobs that share them are cheap.

    Args:
        roots: where each data set lies.
        device: where to run; None is CUDA when there is one, else the CPU.
        incomplete: go on, with a note in the result, where a data set is not whole.
        cache: bytes of pictures to keep in memory; None is a third of what is free.
        score: answers after all "epochs" of a run, or at its "end" alone.
        speed: as in `acclimate.adapt`; None is "auto" on a GPU and "exact" on a CPU, where "auto"
            takes what a clock finds faster, and the same job may end in other numbers.
        smallest_batch: how far batches are halved when memory runs out.
        progress: show bars on stderr.

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
    ) -> None:
        if smallest_batch < 1:
            raise AcclimateError(f"expected smallest_batch >= 1, got {smallest_batch}")
        self.device = choose_device(device)
        if self.device.type == "cuda" and self.device.index is not None:
            torch.cuda.set_device(self.device)
        self.score, self.smallest_batch = score, smallest_batch
        self.speed: Speed = speed or ("exact" if self.device.type == "cpu" else "auto")
        self.progress, self.broken = progress, False
        self._images = ImageCache(
            roots, device=self.device, incomplete=incomplete, cache=cache, progress=progress
        )
        self._models = ModelCache(self.device)
        self._clean: tuple[tuple[str, str], ErrorCounts] | None = None

    def run(self, job: Job, *, halvings: int = 0) -> Result:
        """The result of a job; a failed one, with the reason, where there is no other.

        ``halvings`` of the batch come before the first attempt: processes before this one were
        killed with it.
        """
        try:
            return self._run(job, halvings)
        except AcclimateError as error:
            return Result.failed(job, str(error))
        except Exception as error:  # one broken job must not take the sweep with it
            self.broken = breaks_device(error)
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            return Result.failed(job, f"{type(error).__name__}: {error} ({place})")

    def _run(self, job: Job, halvings: int) -> Result:
        began = time.perf_counter()
        loaded = self._models.load(job)
        met: Met | None = None
        if job.setting is None:
            opened = self._images.shifted(job, loaded.preprocessing)
        else:
            opened, met = self._images.met(job, loaded.preprocessing)
        with heard() as unlike:
            check_classes_fit(find_dataset(job.dataset), opened.images, loaded.classes)
        loading = time.perf_counter() - began
        preprocessing = opened.images.preprocessing
        about: dict[str, Any] = {
            **machine(self.device),
            "data": opened.data,
            "weights": self._models.fingerprint,
            "preprocessing": preprocessing.describe() if preprocessing else None,
            "loading_seconds": round(loading, 3),
        }
        if opened.corruption != job.corruption:
            about["corruption"] = opened.corruption
        forget_peak(self.device)
        attempt = partial(self._attempt, job, loaded, opened)
        if met is not None:
            attempt = partial(self._stream, job, loaded, met)
        found = self._with_less_memory(job, loaded, len(opened.images), attempt, halvings)
        notes = [*opened.notes, *unlike, *found.pop("notes", [])]
        if unlike:
            about["unlike_classes"] = unlike[0]
        return Result(job=job, record={**about, **found, **peak(self.device), "notes": notes})

    def _with_less_memory(
        self, job: Job, loaded: LoadedModel, images: int, attempt: Attempt, halvings: int
    ) -> dict[str, Any]:
        """Run a job; where memory runs out, again with half the batch, down to the smallest."""
        size: int | None = None
        notes: list[str] = []
        if halvings:
            asked = _batch_size(job, loaded, images)
            size = max(self.smallest_batch, asked >> halvings)
            notes.append(_smaller(job, asked, size, by="by all signs, its process was killed, "))
        while True:
            try:
                began = time.perf_counter()
                found = attempt(size)
                found["seconds"] = round(time.perf_counter() - began, 3)
                found["notes"] = [*notes, *found.get("notes", [])]
                return found
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

    def _attempt(
        self, job: Job, loaded: LoadedModel, opened: Opened, size: int | None
    ) -> dict[str, Any]:
        if job.recipe == UNADAPTED:
            used = size or _EVALUATED_AT_ONCE
            scores = self._evaluate(loaded.model, opened, used)
            return {**evaluated_record(scores, opened.images), "batch_size": used, "recipe": None}
        with heard() as said:
            result = adapt(
                loaded,
                opened.images,
                job.recipe,
                options=dict(job.options),
                batch_size=size,
                score=self.score,
                guard="observe",  # collapse has to show in a table, not be mended
                device=self.device,
                seed=job.seed,
                speed=self.speed,
                progress=self.progress,
            )
        asked = opened.images.scoring
        again = None
        if asked is not None and asked.label_of is None and opened.images.labels is not None:
            # The run's confidences are over all outputs, those of the score over some of them.
            again = self._evaluate(result.model, opened, result.record["batch_size"])
        record = adapted_record(result, opened.images, again=again)
        record["notes"] += said
        if self.score == "end" and len(record["errors"]["after_epoch"]) > 1:
            record["score"] = "end"
        if job.forgetting:
            record["forgetting"] = self._forgetting(job, loaded, result.model, record["batch_size"])
        return record

    def _stream(self, job: Job, loaded: LoadedModel, met: Met, size: int | None) -> dict[str, Any]:
        with heard() as said:
            record = streamed_record(
                job,
                loaded,
                met,
                device=self.device,
                batch_size=size,
                speed=self.speed,
                progress=self.progress,
            )
        record["notes"] += said
        return record

    def _evaluate(self, model: torch.nn.Module, opened: Opened, size: int) -> Evaluation:
        return evaluate(
            model, opened.images, batch_size=size, device=self.device, progress=self.progress
        )

    def _forgetting(
        self, job: Job, loaded: LoadedModel, adapted: torch.nn.Module, size: int
    ) -> dict[str, Any]:
        clean = self._images.clean(job, loaded.preprocessing)
        key = (self._models.fingerprint, clean.data)
        if self._clean is None or self._clean[0] != key:
            self._clean = key, self._evaluate(loaded.model, clean, size).errors
        return forgetting(
            self._clean[1],
            adapted,
            clean.images,
            batch_size=size,
            device=self.device,
            progress=self.progress,
        ).to_dict()


def _smaller(job: Job, tried: int, size: int, *, by: str = "") -> str:
    rate = "" if job.recipe == UNADAPTED else "; the learning rate follows linearly"
    return f"{OUT_OF_MEMORY} {by}with batches of {tried}, tried {size} instead{rate}"


def _batch_size(job: Job, loaded: LoadedModel, images: int) -> int:
    """What an attempt without a word about it takes."""
    if job.recipe == UNADAPTED and job.setting is None:
        return _EVALUATED_AT_ONCE
    recipe, _ = tuned_recipe(
        get_recipe(job.recipe), dict(job.options), model_name=loaded.name, images=images
    )
    return min(recipe.batch_size, images)
