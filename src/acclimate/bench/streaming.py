"""A job in a setting: a stream of images, each predicted before it is learnt from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from tqdm import tqdm

from acclimate.adaptation.passes import PredictionBuffer
from acclimate.bench.job import ImageOrder, Job
from acclimate.bench.record import Errors, Record, Span
from acclimate.data import Batch, batch_count, batches
from acclimate.data.base import JoinedSource
from acclimate.errors import AcclimateError
from acclimate.methods.registry import get_recipe
from acclimate.metrics import Scores, Tally
from acclimate.models import LoadedModel
from acclimate.models.device import floating_dtype
from acclimate.presets import tuned_recipe
from acclimate.stream import Stream
from acclimate.text import Speed

__all__ = ["Met", "correlated_order", "stream_order", "streamed_record"]

_MOST_SLOTS = 100


def stream_order(
    setting: ImageOrder, sizes: Sequence[int], labels: Tensor | None, *, seed: int
) -> Tensor:
    """The indices of all images of some shifts, joined, in the order they are met.

    >>> order = stream_order(ImageOrder("continual"), [2, 3], None, seed=0)
    >>> sorted(order[:2].tolist()), sorted(order[2:].tolist())
    ([0, 1], [2, 3, 4])
    """
    draw = torch.Generator().manual_seed(seed)
    if setting.name == "mixed":
        return torch.randperm(sum(sizes), generator=draw)
    parts, start = [], 0
    for size in sizes:
        if setting.concentration is None:
            order = torch.randperm(size, generator=draw)
        else:
            if labels is None:
                raise AcclimateError("correlated labels need labels to order the images by")
            own = labels[start : start + size]
            order = correlated_order(own, concentration=setting.concentration, generator=draw)
        parts.append(start + order)
        start += size
    return torch.cat(parts)


def correlated_order(labels: Tensor, *, concentration: float, generator: torch.Generator) -> Tensor:
    """An order in which images of a class come together, the more the lower the concentration.

    The images of each class are shared out over as many spans of time as there are classes (100 at
    most) by a draw from a Dirichlet distribution, as Yuan et al. (2023) do; within a span the
    classes come one after the other.

    >>> labels = torch.arange(2).repeat(50)
    >>> order = correlated_order(labels, concentration=1e-3, generator=torch.Generator())
    >>> changes = (labels[order].diff() != 0).sum()
    >>> bool(changes < 5), sorted(order.tolist()) == list(range(100))
    (True, True)
    """
    classes = [int(each) for each in labels.unique()]
    slots = min(len(classes), _MOST_SLOTS)
    spans: list[list[Tensor]] = [[] for _ in range(slots)]
    for each in classes:
        own = (labels == each).nonzero().squeeze(1)
        own = own[torch.randperm(len(own), generator=generator)]
        shares = _dirichlet(slots, concentration, generator)
        ends = (shares.cumsum(0) * len(own)).round().long()
        ends[-1] = len(own)
        start = 0
        for slot, end in enumerate(ends.tolist()):
            spans[slot].append(own[start:end])
            start = end
    ordered = []
    for span in spans:
        turns = torch.randperm(len(span), generator=generator).tolist()
        ordered += [span[turn] for turn in turns]
    return torch.cat(ordered)


def _dirichlet(count: int, concentration: float, generator: torch.Generator) -> Tensor:
    """A draw of shares that add up to 1."""
    # Gamma draws of a small shape a underflow to 0 all together; the logarithm of one is that of a
    # draw of shape a + 1 plus log(U) / a, which loses nothing.
    shape = torch.full((count,), concentration, dtype=torch.float64)
    uniform = torch.rand(count, generator=generator, dtype=torch.float64).clamp_min(1e-300)
    larger = torch._standard_gamma(shape + 1, generator=generator)
    return (larger.log() + uniform.log() / concentration).softmax(dim=0)


_SPANS = 20
"""A stream is scored in so many parts, one after the other: how the error goes while it learns."""


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
    speed: Speed = "auto",
    progress: bool = False,
) -> Record:
    """Run the stream; what is recorded of it."""
    assert job.setting is not None
    setting = ImageOrder.parse(job.setting)
    options = dict(job.options)
    if get_recipe(job.recipe, options).episode is None:  # a stream passes once, whatever the recipe
        options["epochs"] = 1
    recipe, notes = tuned_recipe(
        get_recipe(job.recipe),
        options,
        model_name=loaded.name,
        images=len(met.images.sources[0]),  # how many shifts will follow is not known beforehand
        model=loaded.model,
        classes=loaded.class_count,
    )
    size = min(setting.batch_size or batch_size or recipe.batch_size, len(met.images))
    stream = Stream(
        loaded.model, recipe, batch_size=size, guard="observe", seed=job.seed, speed=speed
    )
    order = stream_order(
        setting, [len(each) for each in met.images.sources], met.images.labels, seed=job.seed
    )
    counts = _Counts(met, device=device)
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
        counts.add(stream(batch.images.to(dtype)), batch)
    by_shift, scores = counts.by_shift(), counts.scores()
    return Record(
        # Of a stream there is no model to be returned: the predictions it made are the result.
        errors=Errors(online=scores.error, final=scores.error),
        images=scores.images,
        labelled=scores.labelled,
        wrong=None if scores.error is None else round(scores.error * scores.labelled / 100),
        by_shift=by_shift,
        spans=counts.spans(),
        events=tuple(vars(event) for event in stream.events),
        forwards=stream.learner.forwards,
        backwards=stream.learner.backwards,
        notes=(*notes, *stream.notes),
        batch_size=size,
        speed=str(stream.learner.network.ran),
        recipe=recipe.to_dict(),
    )


class _Counts:
    """Sums over the predictions of each shift and in each span of the stream.

    Many batches at a time: a GPU waits for each split.
    """

    def __init__(self, met: Met, *, device: torch.device) -> None:
        self._images, self._shifts = met.images, met.shifts
        labels = met.images.labels
        self._labels = None if labels is None else labels.to(device)
        self._total, self._seen = len(met.images), 0
        self._spans = min(_SPANS, self._total)
        # One for each shift in each span; both are sums of these.
        self._tallies = [[Tally() for _ in range(self._spans)] for _ in met.shifts]
        self._answers = PredictionBuffer(self._count)
        self._indices: list[torch.Tensor] = []

    def add(self, logits: torch.Tensor, batch: Batch) -> None:
        """Count the predictions of a batch, now or later."""
        self._indices.append(batch.indices)
        self._answers.add(logits, batch.rows)

    def by_shift(self) -> dict[str, list[float | None]]:
        """The error each time a shift came."""
        self._answers.flush()
        errors: dict[str, list[float | None]] = {}
        for name, tallies in zip(self._shifts, self._tallies, strict=True):
            errors.setdefault(name, []).append(_sum(tallies).error)
        return errors

    def scores(self) -> Scores:
        """Over the whole stream."""
        self._answers.flush()
        return _sum([tally for tallies in self._tallies for tally in tallies])

    def spans(self) -> tuple[Span, ...]:
        """Error and most frequent prediction in each part of the stream, in the order they came."""
        self._answers.flush()
        return tuple(_span(_sum(tallies)) for tallies in zip(*self._tallies, strict=True))

    def _count(self, logits: torch.Tensor, rows: torch.Tensor) -> None:
        came = torch.arange(self._seen, self._seen + len(logits))
        self._seen += len(logits)
        span = came * self._spans // self._total
        shift = self._images.which(torch.cat(self._indices))
        which, order = (shift * self._spans + span).sort(stable=True)
        self._indices.clear()
        numbers, sizes = which.unique_consecutive(return_counts=True)
        for number, place in zip(
            numbers.tolist(), order.to(logits.device).split(sizes.tolist()), strict=True
        ):
            shift_number, span_number = divmod(number, self._spans)
            self._tallies[shift_number][span_number].update(
                logits[place],
                labels=None if self._labels is None else self._labels[rows[place]],
                scoring=self._images.scoring,
            )


def _sum(tallies: Iterable[Tally]) -> Scores:
    whole = Tally()
    for tally in tallies:
        whole.merge(tally)
    return whole.scores()


def _span(scores: Scores) -> Span:
    largest = max(scores.class_counts, default=0) / max(scores.images, 1)
    return Span(images=scores.images, error=scores.error, largest=largest)
