"""Passes over the images: batch by batch, with a progress bar, scored as they go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor
from tqdm.auto import tqdm

from acclimate import parallel
from acclimate.data import Batch, ImageSource, batch_count, batches
from acclimate.data.loading import Resident
from acclimate.metrics import Scores, Tally

__all__ = ["Passes", "PredictionBuffer", "Predictions"]

_ENOUGH = 2048


class PredictionBuffer:
    """Collects logits and the indices of their images, to score many batches at a time.

    Scoring is two dozen small operations; for each small batch they would take a GPU's host longer
    than the model takes.

    >>> buffer = PredictionBuffer(lambda logits, rows: print(rows))
    >>> for row in range(3):
    ...     buffer.add(torch.zeros(1, 2), torch.tensor([row]))
    >>> buffer.flush()
    tensor([0, 1, 2])
    """

    def __init__(self, score: Callable[[Tensor, Tensor], None]) -> None:
        self._score = score
        self._images = 0
        self._logits: list[Tensor] = []
        self._rows: list[Tensor] = []

    def add(self, logits: Tensor, rows: Tensor) -> None:
        """Add a batch, and score what there is if that is enough."""
        self._images += len(logits)
        self._logits.append(logits)
        self._rows.append(rows)
        if self._images >= _ENOUGH:
            self.flush()

    def flush(self) -> None:
        """Score what there is."""
        packed = self.pack()
        self._clear()
        if packed:
            self._score(packed["logits"], packed["rows"])

    def pack(self) -> dict[str, Tensor]:
        """What is not scored yet, for a checkpoint: scores do not depend on when it is written."""
        if not self._images:
            return {}
        return {"logits": torch.cat(self._logits), "rows": torch.cat(self._rows)}

    def unpack(self, packed: Mapping[str, Tensor], device: torch.device) -> None:
        """Resume from a checkpoint."""
        self._clear()
        if packed:
            self.add(packed["logits"].to(device), packed["rows"].to(device))

    def _clear(self) -> None:
        self._images, self._logits, self._rows = 0, [], []


@dataclass(frozen=True)
class Predictions:
    """Predicted class, its probability, raw and calibrated, one per image, on the CPU."""

    classes: Tensor
    confidence: Tensor
    probability: Tensor


@dataclass(frozen=True)
class Passes:
    """How a set of images is read: in which batches, on which device, and whether with a bar.

    ``shared`` passes are made by all processes of a group, each with its part of every batch; a
    batch's ``images`` are then that part, its ``indices`` those of the whole batch.

    Images stay on the device for the passes to come if all fit in ``room`` bytes; None is a third
    of what is free on a GPU, and none on a CPU, where the images keep what they decoded themselves.
    """

    images: ImageSource
    batch_size: int
    device: torch.device
    show_progress: bool
    dtype: torch.dtype = torch.float32
    shared: bool = False
    room: int | None = None

    @cached_property
    def _resident(self) -> Resident:
        return Resident(len(self.images), device=self.device, room=self.room)

    @cached_property
    def _labels(self) -> Tensor | None:
        labels = self.images.labels
        return None if labels is None else labels.to(self.device)

    def batches(
        self,
        title: str,
        *,
        order: Tensor | None = None,
        start: int = 0,
        shared: bool | None = None,
    ) -> Iterator[Batch]:
        """Batches on the device, from index ``start`` on; ``shared`` as in the passes, or not."""
        size = self.batch_size
        shared = self.shared if shared is None else shared
        # Asked for here: the thread that reads does not know whether this one is alone.
        own = partial(parallel.share, of=(parallel.rank(), parallel.world()))
        for batch in tqdm(
            batches(
                self.images,
                batch_size=size,
                order=order,
                device=self.device,
                start=start,
                part=own if shared else None,
                resident=self._resident,
            ),
            desc=title,
            initial=start,
            total=batch_count(len(self.images) if order is None else len(order), size),
            disable=not (self.show_progress and parallel.is_main()),
            delay=0.5,
            leave=False,
            unit="batch",
        ):
            yield replace(batch, images=batch.images.to(self.dtype))

    def sample(self, title: str, order: Tensor) -> Iterator[Tensor]:
        """Model input for some images, all of it in every process of a group."""
        for batch in self.batches(title, order=order, shared=False):
            yield batch.images

    def whole(self, logits: Tensor, batch: Batch) -> Tensor:
        """The logits of the whole batch, given those of this process's part."""
        return parallel.gathered(logits, total=len(batch.indices)) if self.shared else logits

    def labels_of(self, rows: Tensor) -> Tensor | None:
        """True classes of some images, for scoring, where there are any."""
        return None if self._labels is None else self._labels[rows]

    def score(self, tally: Tally, logits: Tensor, rows: Tensor, *, source: Tensor) -> Tensor:
        """Add the predictions of some images to a tally; the predicted classes.

        ``source`` are the source model's classes of all images, on the device, or empty.
        """
        return tally.update(
            logits,
            labels=self.labels_of(rows),
            source=source[rows] if len(source) else None,
            scoring=self.images.scoring,
        )

    @torch.no_grad()
    def predict(
        self,
        title: str,
        forward: Callable[[Batch], Tensor],
        *,
        source: Tensor,
        order: Tensor | None = None,
        temperature: float = 1.0,
    ) -> tuple[Predictions, Scores]:
        """Predictions for all images and their scores, ``source`` being the source model's classes.

        ``temperature`` divides the logits for calibrated probabilities. All of it stays on the
        device to the end of the pass: no batch waits for the one before.
        """
        tally, source = Tally(), source.to(self.device)
        classes = torch.zeros(len(self.images), dtype=torch.int64, device=self.device)
        confidence = torch.zeros(len(self.images), device=self.device)
        probability = torch.zeros_like(confidence)

        def score(logits: Tensor, rows: Tensor) -> None:
            confidence[rows] = logits.float().softmax(dim=1).amax(dim=1)
            probability[rows] = (logits.float() / temperature).softmax(dim=1).amax(dim=1)
            classes[rows] = self.score(tally, logits, rows, source=source)

        buffer = PredictionBuffer(score)
        for batch in self.batches(title, order=order):
            buffer.add(self.whole(forward(batch), batch), batch.rows)
        buffer.flush()
        found = Predictions(classes.cpu(), confidence.cpu(), probability.cpu())
        return found, tally.scores()
