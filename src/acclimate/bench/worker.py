"""A worker: turns one job after the other into results, and keeps what the next one can use."""

from __future__ import annotations

import gc
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy
import torch
from torch import Tensor

from acclimate._version import __version__
from acclimate.bench.images import ImageCache, Opened, noted_warnings
from acclimate.bench.job import UNADAPTED, Job, Weights
from acclimate.bench.record import Record, Result, plain
from acclimate.bench.scoring import Evaluation, Trials
from acclimate.bench.streaming import Met, streamed_record
from acclimate.checkpoint import fingerprint
from acclimate.data import ImageSource
from acclimate.data.benchmarks import check_classes_fit, find_dataset
from acclimate.errors import AcclimateError
from acclimate.guard.history import History
from acclimate.guard.verdict import label_free_score
from acclimate.methods.registry import get_recipe
from acclimate.metrics import Calibration, Scores
from acclimate.models import LoadedModel, load, want_trained
from acclimate.models.device import choose_device
from acclimate.models.layers import batch_norm_layers
from acclimate.presets import tuned_recipe
from acclimate.result import AdaptationResult
from acclimate.text import Score, Speed

__all__ = ["OUT_OF_MEMORY", "Worker", "calibration_of", "machine", "peak"]


def calibration_of(
    confidence: Tensor, predictions: Tensor, labels: Tensor, *, bins: int = 15
) -> Calibration:
    """What `Calibration` would have summed up over the logits; images with label -1 are left out.

    >>> confidence, predictions = torch.tensor([0.5, 0.999]), torch.tensor([0, 0])
    >>> print(calibration_of(confidence, predictions, torch.tensor([0, 1]), bins=2).ece())
    0.250 (2 images)
    """
    usable = (labels >= 0) & ~confidence.isnan()
    edges = torch.linspace(0, 1, bins + 1)
    # Bins have their lower end; a confidence of exactly 1 has one to itself.
    index = (torch.bucketize(confidence.nan_to_num(), edges, right=True) - 1).clamp(0, bins)
    whole = torch.zeros(bins + 1, dtype=torch.int64)
    right = usable & (predictions == labels)
    return Calibration(
        bins=bins,
        images=len(labels),
        count=whole.index_add(0, index, usable.long()),
        right=whole.index_add(0, index, right.long()),
        confidence=whole.double().index_add(
            0, index, torch.where(usable, confidence, 0.0).double()
        ),
        nan=confidence.isnan().sum(),
    )


_COUNTED = 200
"""Up to so many classes it is kept how often each was predicted; else how even it was."""

_LABEL_FREE = ("agreement", "confidence", "entropy", "diversity", "nuclear_norm")


def evaluated_record(scores: Evaluation, images: ImageSource) -> dict[str, Any]:
    """Of an unadapted model."""
    error = scores.errors.error().value
    mapped = scores.mapped(None if images.scoring is None else images.scoring.label_of)
    return {**scores.to_dict(), **mapped, "errors": {"unadapted": error, "final": error}}


def adapted_record(
    result: AdaptationResult, images: ImageSource, *, again: Evaluation | None = None
) -> dict[str, Any]:
    """Of an adapted model; ``again`` are its scores where those of the run are not enough."""
    history, final = result.history, result.history.final
    assert final is not None
    labelled = final.labelled
    record: dict[str, Any] = {
        "errors": _errors(history),
        "images": len(images),
        "labelled": labelled,
        "wrong": None if final.error is None else round(final.error * labelled / 100),
        "verdict": result.verdict.word,
        "reason": result.verdict.reason,
        "events": [vars(event) for event in history.events],
        "scores": [_score(epoch.after_epoch) for epoch in history.epochs],
        "label_free": {
            "source": _label_free(history.source),
            "start": _label_free(history.start),
            "after_epoch": [_label_free(epoch.after_epoch) for epoch in history.epochs],
            "final": _label_free(final),
        },
        "drift": [epoch.drift for epoch in history.epochs],
        "start_balance": _balance(history.start),
        "balance": [_balance(epoch.after_epoch) for epoch in history.epochs],
        "statistics_gap": history.statistics_gap,
        "batch_norm_layers": len(batch_norm_layers(result.model)),
        "recipe": result.recipe.to_dict(),
        "weights": result.record.weights,
        "batch_size": result.record.batch_size,
        "speed": result.record.acceleration,
        "notes": list(result.notes),
    }
    return record | _calibrated(result, images, again)


def _errors(history: History) -> dict[str, Any]:
    epochs = history.epochs
    start = _error(history.start)
    return {
        "unadapted": _error(history.source),
        "start": start,
        # Where nothing is learnt, each prediction with its batch's statistics is the online one.
        "online": _error(epochs[0].before_update) if epochs else start,
        "before_update": [_error(epoch.before_update) for epoch in epochs],
        "after_epoch": [_error(epoch.after_epoch) for epoch in epochs],
        "final": _error(history.final),
    }


def _error(scores: Scores | None) -> float | None:
    return None if scores is None else scores.error


def _score(scores: Scores | None) -> float | None:
    return None if scores is None or scores.agreement is None else label_free_score(scores)


def _label_free(scores: Scores | None) -> dict[str, float | None] | None:
    return None if scores is None else {name: getattr(scores, name) for name in _LABEL_FREE}


def _balance(scores: Scores | None) -> dict[str, Any] | None:
    """How evenly the classes are predicted: a collapse shows here."""
    if scores is None or not scores.class_counts:
        return None
    counts = scores.class_counts
    plain: dict[str, Any] = {
        "classes": scores.diversity,
        "largest": max(counts) / max(sum(counts), 1),
        "unused": sum(count == 0 for count in counts),
    }
    return {**plain, "counts": list(counts)} if len(counts) <= _COUNTED else plain


def _calibrated(
    result: AdaptationResult, images: ImageSource, again: Evaluation | None
) -> dict[str, Any]:
    calibration: Calibration | None
    if again is not None:
        calibration = again.calibration
    elif images.labels is None or images.scoring is not None:
        calibration = None
    else:
        calibration = calibration_of(result.confidence, result.predictions, images.labels)
    # A model whose predictions are no numbers has no confidence to judge.
    if calibration is None or int(calibration.nan) or not int(calibration.count.sum()):
        return {"ece": None}
    curve = [vars(point) for point in calibration.reliability()]
    return {"ece": calibration.ece().value, "reliability": curve}


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

    def load(self, job: Job) -> LoadedModel:
        """The model of a job, filled with its weights."""
        key = (job.model, job.weights)
        if self._last is None or self._last[0] != key:
            self._last = None  # before the next one takes its memory
            _check_weights(job.weights)
            want_trained(job.model, None if job.weights is None else job.weights.path)
            loaded = load(job.model, weights=None if job.weights is None else job.weights.path)
            loaded = replace(loaded, model=loaded.model.to(self.device))
            self.fingerprint = fingerprint(loaded.model.state_dict())
            self._last = key, loaded
        return self._last[1]


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


Attempt: TypeAlias = Callable[[int | None], dict[str, Any]]
"""To run a job with batches of this size, or of the size it would take."""

_EVALUATED_AT_ONCE = 128


class Worker:
    """Runs jobs. The last model and the last images are kept: jobs that share them are cheap.

    Args:
        roots: where each data set lies.
        device: where to run; None is CUDA when there is one, else the CPU.
        incomplete: continue, with a note in the result, where a data set is not whole.
        cache: bytes of images to keep in memory; None is a third of what is free.
        score: predictions after all "epochs" of a run, or at its "end" alone.
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
        self._trials = Trials(device=self.device, score=score, speed=self.speed, progress=progress)

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
        loaded = self._models.load(job)
        met: Met | None = None
        if job.setting is None:
            opened = self._images.shifted(job, loaded.preprocessing)
        else:
            opened, met = self._images.met(job, loaded.preprocessing)
        with noted_warnings() as unlike:
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
        values = {**about, **found, **peak(self.device), "notes": notes}
        return Result(job=job, record=Record.from_dict(plain(values)))

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
        with noted_warnings() as warned:
            result = self._trials.adapt(
                loaded,
                opened.images,
                job.recipe,
                options=dict(job.options),
                batch_size=size,
                seed=job.seed,
            )
        asked = opened.images.scoring
        again = None
        if asked is not None and asked.label_of is None and opened.images.labels is not None:
            # The run's confidences are over all outputs, those of the score over some of them.
            again = self._evaluate(result.model, opened, result.record.batch_size)
        record = adapted_record(result, opened.images, again=again)
        record["notes"] += warned
        if self.score == "end" and len(record["errors"]["after_epoch"]) > 1:
            record["score"] = "end"
        if job.forgetting:
            record["forgetting"] = self._forgetting(job, loaded, result.model, record["batch_size"])
        return record

    def _stream(self, job: Job, loaded: LoadedModel, met: Met, size: int | None) -> dict[str, Any]:
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
        record["notes"] += warned
        return record

    def _evaluate(self, model: torch.nn.Module, opened: Opened, size: int) -> Evaluation:
        return self._trials.evaluate(model, opened.images, batch_size=size)

    def _forgetting(
        self, job: Job, loaded: LoadedModel, adapted: torch.nn.Module, size: int
    ) -> dict[str, Any]:
        clean = self._images.clean(job, loaded.preprocessing)
        key = (self._models.fingerprint, clean.data)
        return self._trials.forgetting(
            loaded.model, adapted, clean.images, key=key, batch_size=size
        )


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
