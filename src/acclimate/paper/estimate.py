"""How long jobs will take: from results of the same model, or from a few images timed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from acclimate.bench.job import UNADAPTED, Job
from acclimate.bench.record import Result
from acclimate.bench.sweep import duration
from acclimate.errors import AcclimateError
from acclimate.methods.registry import get_recipe, list_recipes
from acclimate.models import load
from acclimate.models.device import choose_device
from acclimate.presets import tuned_recipe
from acclimate.text import counted

__all__ = ["Estimate", "estimate", "images_of", "seconds_an_image", "work_of"]

IMAGES = {
    "cifar10": 10_000, "cifar10-c": 10_000, "imagenet": 50_000, "imagenet-c": 50_000,
    "imagenet-r": 30_000, "imagenet-a": 7_500, "imagenet-d": 40_000, "mnist": 10_000,
    "mnist-m": 9_001, "usps": 2_007, "svhn": 26_032, "stl10-cifar10": 7_200,
    "camelyon17": 85_054, "rxrx1": 34_432, "fmow": 22_108,
}  # fmt: skip
"""Images of a shift of each data set, for estimates alone; of ImageNet-D's domains the mean."""

# Passes over the images that a job makes, a forward pass being 1 and a backward one about 2.
_SCORED = 2  # unadapted, and with its statistics estimated
_EPOCH = 4  # forward and backward, and the score afterwards


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Seconds for so many jobs, of those whose model is known; None where none is.

    ``images`` are those of all jobs, each adapted to or scored once; ``unknown`` are models of
    which nothing is known, ``measured`` those that were timed for it.
    """

    seconds: float | None
    jobs: int
    images: int = 0
    unknown: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    workers: int = 1

    def __str__(self) -> str:
        if not self.jobs:
            return "nothing to run"
        runs = f"{counted(self.jobs, 'job')} to run on {counted(self.images, 'image')}"
        if self.seconds is None:
            return f"{runs}; how long that takes is unknown: no results of these models yet"
        at_once = f" with {self.workers} workers" if self.workers > 1 else ""
        words = f"{runs}, about {duration(self.seconds)}{at_once}"
        if self.measured:
            words += f" (by a few images through {', '.join(self.measured)})"
        if self.unknown:
            words += f", and those of {', '.join(self.unknown)}, unknown"
        return words

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**vars(self), "words": str(self)}


def estimate(
    jobs: Sequence[Job],
    results: Iterable[Result],
    *,
    workers: int = 1,
    time_image: Callable[[Job], float | None] | None = None,
    count: Callable[[Job], int | None] = lambda _: None,
) -> Estimate:
    """Seconds for jobs, from results of the same models.

    ``time_image`` takes a job of a model without results and returns the seconds for one image
    forward through it, or None where that cannot be timed. ``count`` takes a job and returns how
    many images its shift has; where it returns None they are as many as were published.

    >>> job = Job(model="acclimate:digits", dataset="mnist", recipe="none", images=100)
    >>> done = Result(job=job, record={"seconds": 2.0, "images": 100})
    >>> longer = Job(model="acclimate:digits", dataset="mnist", recipe="none")
    >>> print(estimate([longer], [done]))
    1 job to run on 10,000 images, about 3 min
    """
    rates, timed, unknown = _rates_of(results), [], []
    by_model: dict[str, float] = defaultdict(float)
    images = 0
    for job in jobs:
        there = images_of(job, count(job))
        images += there
        by_model[job.model] += work_of(job, there)
    for model in by_model:
        if model in rates:
            continue
        first = next(job for job in jobs if job.model == model)
        rate = None if time_image is None else time_image(first)
        if rate is None:
            unknown.append(model)
        else:
            timed.append(model)
            rates[model] = rate
    seconds = sum(rates[model] * work for model, work in by_model.items() if model in rates)
    return Estimate(
        seconds=seconds / max(1, min(workers, len(jobs))) if len(by_model) > len(unknown) else None,
        jobs=len(jobs),
        images=images,
        unknown=tuple(unknown),
        measured=tuple(timed),
        workers=workers,
    )


def _rates_of(results: Iterable[Result]) -> dict[str, float]:
    """Seconds for one image once forward through each model, with all that is around it."""
    took: dict[str, float] = defaultdict(float)
    work: dict[str, float] = defaultdict(float)
    known = {UNADAPTED, *(recipe.name for recipe in list_recipes())}
    for result in results:
        seconds, images = result.record.seconds, result.record.images
        # A recipe of somebody's own may have run in another process.
        if result.status == "done" and seconds and images and result.job.recipe in known:
            epochs = (result.record.recipe or {}).get("epochs")
            took[result.job.model] += seconds + (result.record.loading_seconds or 0)
            work[result.job.model] += images * _passes(result.job, epochs, images)
    return {model: took[model] / work[model] for model in took}


def images_of(job: Job, there: int | None = None) -> int:
    """The images of a job, of those that are there or, where that is not known, were published.

    >>> job = Job(model="m", dataset="usps", recipe="none")
    >>> images_of(job), images_of(job, 100)
    (2007, 100)
    """
    usual = IMAGES.get(job.dataset, 10_000) if there is None else there
    return usual if job.images is None else min(job.images, usual)


def work_of(job: Job, there: int | None = None) -> int:
    """Images times passes of a job."""
    images = images_of(job, there)
    return images * _passes(job, None, images)


def _passes(job: Job, epochs: int | None, images: int) -> int:
    if job.recipe == UNADAPTED:
        return 1
    recipe = get_recipe(job.recipe)
    if not recipe.learns:
        return _SCORED
    if epochs is None:
        tuned, _ = tuned_recipe(recipe, dict(job.options), model_name=job.model, images=images)
        epochs = tuned.epochs
    return _SCORED + _EPOCH * epochs + (2 * _SCORED if job.forgetting else 0)


def seconds_an_image(job: Job, *, device: str | None = None) -> float | None:
    """Seconds for one image forward through a job's model, with whatever weights.

    None where the model would have to be fetched first.

    >>> seconds_an_image(Job(model="acclimate:digits", dataset="mnist", recipe="none")) > 0
    True
    >>> seconds_an_image(Job(model="paper:resnet50", dataset="imagenet", recipe="none")) is None
    True
    """
    if not job.model.startswith("acclimate:") and job.weights is None:
        return None
    try:
        loaded = load(job.model, weights=None if job.weights is None else job.weights.path)
    except AcclimateError:
        return None  # the job itself reports why
    if loaded.preprocessing is None:
        return None
    where = choose_device(device)
    model = loaded.model.to(where)
    images = torch.zeros(8, *loaded.preprocessing.shape, device=where)
    times = []
    with torch.inference_mode():
        for _ in range(3):
            began = time.perf_counter()
            model(images).sum().item()  # .item() waits for the device
            times.append(time.perf_counter() - began)
    return min(times[1:]) / len(images)  # the first one loads kernels
