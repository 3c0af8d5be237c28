"""Passes over the images: batch by batch, with a progress bar, scored as they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from tqdm.auto import tqdm

from acclimate import parallel
from acclimate.data import Batch, ImageSource, batch_count, batches
from acclimate.metrics import Scores, Tally

__all__ = ["Passes", "Predictions"]


@dataclass(frozen=True)
class Predictions:
    """Predicted class and its probability, one per image, on the CPU."""

    classes: Tensor
    confidence: Tensor


@dataclass(frozen=True)
class Passes:
    """How a set of images is gone through: in which batches, where to, and whether with a bar.

    ``shared`` passes are gone through by all processes of a group, each with its part of every
    batch; its ``images`` are then that part, its ``indices`` those of the whole batch.
    """

    images: ImageSource
    batch_size: int
    device: torch.device
    show_progress: bool
    dtype: torch.dtype = torch.float32
    shared: bool = False

    def batches(
        self, title: str, *, order: Tensor | None = None, start: int = 0
    ) -> Iterator[Batch]:
        """Batches on the device, from number ``start`` on."""
        size = self.batch_size
        # Asked for here: the thread that reads does not know whether this one is alone.
        own = partial(parallel.share, of=(parallel.rank(), parallel.world()))
        for batch in tqdm(
            batches(
                self.images,
                batch_size=size,
                order=order,
                device=self.device,
                start=start,
                part=own if self.shared else None,
            ),
            desc=title,
            initial=start,
            total=batch_count(len(self.images), size),
            disable=not (self.show_progress and parallel.is_main()),
            delay=0.5,
            leave=False,
            unit="batch",
        ):
            yield replace(batch, images=batch.images.to(self.dtype))

    def whole(self, logits: Tensor, batch: Batch) -> Tensor:
        """The logits of the whole batch, given those of this process's part."""
        return parallel.gathered(logits, total=len(batch.indices)) if self.shared else logits

    def labels_of(self, batch: Batch) -> Tensor | None:
        """True classes of a batch, for scoring, where there are any."""
        labels = self.images.labels
        return None if labels is None else labels[batch.indices].to(self.device)

    def of(self, classes: Tensor, batch: Batch) -> Tensor | None:
        """A batch's share of one class per image; None when there are none."""
        return classes[batch.indices].to(self.device) if len(classes) else None

    @torch.no_grad()
    def predict(
        self,
        title: str,
        forward: Callable[[Batch], Tensor],
        *,
        source: Tensor,
        order: Tensor | None = None,
    ) -> tuple[Predictions, Scores]:
        """Answers for every image and their scores, ``source`` being the source model's classes."""
        tally = Tally()
        classes = torch.zeros(len(self.images), dtype=torch.int64)
        confidence = torch.zeros(len(self.images))
        for batch in self.batches(title, order=order):
            logits = self.whole(forward(batch), batch)
            top = tally.update(
                logits,
                labels=self.labels_of(batch),
                source=self.of(source, batch),
                scoring=self.images.scoring,
            )
            classes[batch.indices] = top.cpu()
            confidence[batch.indices] = logits.float().softmax(dim=1).amax(dim=1).cpu()
        return Predictions(classes, confidence), tally.scores()
