"""A job in a setting: a stream of images, each answered before it is learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from acclimate.copying import floating_dtype
from acclimate.data import batch_count, batches
from acclimate.data.joined import JoinedSource
from acclimate.experiments.job import Job
from acclimate.experiments.settings import Setting, stream_order
from acclimate.metrics import Tally
from acclimate.models import LoadedModel
from acclimate.presets import tuned_recipe
from acclimate.recipes import get_recipe
from acclimate.stream import Stream

__all__ = ["Met", "streamed_record"]


@dataclass(frozen=True, kw_only=True)
class Met:
    """What a stream meets: the images of each shift, joined, and the shifts' names."""

    images: JoinedSource
    shifts: Sequence[str]


def streamed_record(
    job: Job,
    loaded: LoadedModel,
    met: Met,
    *,
    device: torch.device,
    batch_size: int | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Run the stream; what is written down of it."""
    assert job.setting is not None
    setting = Setting.parse(job.setting)
    options = dict(job.options)
    if get_recipe(job.recipe, options).episode is None:  # a stream passes once, whatever the recipe
        options["epochs"] = 1
    recipe, notes = tuned_recipe(
        get_recipe(job.recipe),
        options,
        model_name=loaded.name,
        images=len(met.images.sources[0]),  # how many shifts will follow is not known beforehand
    )
    size = min(setting.batch_size or batch_size or recipe.batch_size, len(met.images))
    stream = Stream(loaded.model, recipe, batch_size=size, guard="observe", seed=job.seed)
    order = stream_order(
        setting, [len(each) for each in met.images.sources], met.images.labels, seed=job.seed
    )
    tallies = [Tally() for _ in met.shifts]
    dtype = floating_dtype(loaded.model)
    for batch in tqdm(
        batches(met.images, batch_size=size, order=order, device=device),
        desc=f"{job.recipe}, {setting}",
        total=batch_count(len(met.images), size),
        disable=not progress,
        delay=0.5,
        leave=False,
        unit="batch",
    ):
        logits = stream(batch.images.to(dtype))
        _count(tallies, logits, batch.indices, met)
    return _record(tallies, met, stream) | {
        "notes": [*notes, *stream.notes],
        "batch_size": size,
        "speed": str(stream.learner.network.acceleration),
        "recipe": recipe.to_dict(),
    }


def _count(tallies: Sequence[Tally], logits: torch.Tensor, indices: torch.Tensor, met: Met) -> None:
    labels, which = met.images.labels, met.images.which(indices)
    for number in which.unique().tolist():
        place = which == number
        tallies[number].update(
            logits[place.to(logits.device)],
            labels=None if labels is None else labels[indices[place]].to(logits.device),
            scoring=met.images.scoring,
        )


def _record(tallies: Sequence[Tally], met: Met, stream: Stream) -> dict[str, Any]:
    whole = Tally()
    each: dict[str, list[float | None]] = {}
    for name, tally in zip(met.shifts, tallies, strict=True):
        whole.merge(tally)
        each.setdefault(name, []).append(tally.scores().error)
    scores = whole.scores()
    return {
        # Of a stream there is no model to be handed back: the answers it gave are the result.
        "errors": {"online": scores.error, "final": scores.error},
        "images": scores.images,
        "labelled": scores.labelled,
        "wrong": None if scores.error is None else round(scores.error * scores.labelled / 100),
        "by_shift": each,
        "events": [vars(event) for event in stream.events],
        "forwards": stream.learner.forwards,
        "backwards": stream.learner.backwards,
        "ece": None,
    }
