"""A few images through a model, to see how long one takes."""

from __future__ import annotations

import time
from functools import partial

import torch

from acclimate.copying import choose_device
from acclimate.errors import AcclimateError
from acclimate.experiments.job import Job
from acclimate.models import load

__all__ = ["seconds_an_image"]

_IMAGES = 8
_TIMES = 2


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
        return None  # the job itself says why
    if loaded.preprocessing is None:
        return None
    where = choose_device(device)
    model = loaded.model.to(where)
    images = torch.zeros(_IMAGES, *loaded.preprocessing.shape, device=where)
    with torch.inference_mode():
        run = partial(_timed, model, images)
        run()  # the first one loads kernels
        return min(run() for _ in range(_TIMES)) / _IMAGES


def _timed(model: torch.nn.Module, images: torch.Tensor) -> float:
    began = time.perf_counter()
    model(images).sum().item()  # .item() waits for the device
    return time.perf_counter() - began
