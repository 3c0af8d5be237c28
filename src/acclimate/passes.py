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
from acclimate.data.resident import Resident
from acclimate.metrics import Scores, Tally

__all__ = ["Answers", "Passes", "Predictions"]

_ENOUGH = 2048


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

    Pictures stay on the device for the passes to come if all fit in ``room`` bytes; None is a third
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
    def _labels(self) -> _Moved:
        return _Moved(self.device)

    @cached_property
    def _classes(self) -> _Moved:
        return _Moved(self.device)

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
                resident=self._resident,
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

    def labels_of(self, rows: Tensor) -> Tensor | None:
        """True classes of some images, for scoring, where there are any."""
        labels = self.images.labels
        return None if labels is None else self._labels.of(labels)[rows]

    def of(self, classes: Tensor, rows: Tensor) -> Tensor | None:
        """Some images' share of one class per image; None when there are none."""
        return self._classes.of(classes)[rows] if len(classes) else None

    def score(
        self, tally: Tally, answers: Answers, *, source: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Add answers that were put aside to a tally; their logits, rows and predicted classes."""
        if answers.losses:
            total = torch.stack([loss * images for loss, images in answers.losses]).sum()
            tally.add_loss(total, images=sum(images for _, images in answers.losses))
        logits, rows = answers.take()
        top = tally.update(
            logits,
            labels=self.labels_of(rows),
            source=self.of(source, rows),
            scoring=self.images.scoring,
        )
        return logits, rows, top

    @torch.no_grad()
    def predict(
        self,
        title: str,
        forward: Callable[[Batch], Tensor],
        *,
        source: Tensor,
        order: Tensor | None = None,
    ) -> tuple[Predictions, Scores]:
        """Answers for every image and their scores, ``source`` being the source model's classes.

        All of it stays on the device to the end of the pass: no batch waits for the one before.
        """
        tally = Tally()
        classes = torch.zeros(len(self.images), dtype=torch.int64, device=self.device)
        confidence = torch.zeros(len(self.images), device=self.device)
        answers = Answers()

        def score() -> None:
            logits, rows, top = self.score(tally, answers, source=source)
            confidence[rows] = logits.float().softmax(dim=1).amax(dim=1)
            classes[rows] = top

        for batch in self.batches(title, order=order):
            answers.add(self.whole(forward(batch), batch), batch.rows)
            if answers.enough:
                score()
        if answers.images:
            score()
        return Predictions(classes.cpu(), confidence.cpu()), tally.scores()


class Answers:
    """Answers put aside until there are enough to score.

    Scoring is two dozen small operations; for each small batch they would take a GPU's host longer
    than the model takes.

    >>> answers = Answers()
    >>> for row in range(3):
    ...     answers.add(torch.zeros(1, 2), torch.tensor([row]))
    >>> answers.take()[1]
    tensor([0, 1, 2])
    """

    def __init__(self) -> None:
        self.images = 0
        self._logits: list[Tensor] = []
        self._rows: list[Tensor] = []
        self.losses: list[tuple[Tensor, int]] = []

    def add(self, logits: Tensor, rows: Tensor, loss: Tensor | None = None) -> None:
        """Put the answers to a batch aside, with its mean loss."""
        self.images += len(logits)
        self._logits.append(logits)
        self._rows.append(rows)
        if loss is not None:
            self.losses.append((loss.detach(), len(logits)))

    @property
    def enough(self) -> bool:
        """Whether it is time."""
        return self.images >= _ENOUGH

    def pack(self) -> dict[str, Tensor]:
        """What was put aside, for a checkpoint: scores must not hang on when one is written."""
        if not self.images:
            return {}
        packed = {"logits": torch.cat(self._logits), "rows": torch.cat(self._rows)}
        if self.losses:
            packed["losses"] = torch.stack([loss for loss, _ in self.losses])
            packed["counts"] = torch.tensor([images for _, images in self.losses])
        return packed

    def unpack(self, packed: Mapping[str, Tensor], device: torch.device) -> None:
        """Go on from a checkpoint."""
        self.take()
        if packed:
            self.add(packed["logits"].to(device), packed["rows"].to(device))
        if "losses" in packed:
            losses = packed["losses"].to(device).unbind()
            self.losses = list(zip(losses, packed["counts"].tolist(), strict=True))

    def take(self) -> tuple[Tensor, Tensor]:
        """All logits and rows, and begin anew."""
        none = torch.zeros(0)
        taken = torch.cat(self._logits or [none]), torch.cat(self._rows or [none])
        self.images = 0
        for each in (self._logits, self._rows, self.losses):
            each.clear()
        return taken


class _Moved:
    """The last tensor asked for, on the device: it goes there once, not with every batch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last: tuple[Tensor, Tensor] | None = None

    def of(self, tensor: Tensor) -> Tensor:
        if self._last is None or self._last[0] is not tensor:
            self._last = tensor, tensor.to(self._device)
        return self._last[1]
