"""The run of :func:`acclimate.adapt`: source pass, epochs, statistics, predictions; resumable."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm

from acclimate.data import Batch, ImageSource, batch_count, batches, epoch_order
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.guard import Guard, Watch, drift
from acclimate.history import EpochRecord, Event, History
from acclimate.learner import Learner
from acclimate.metrics import Scores, Tally
from acclimate.normalization import StatisticsPool
from acclimate.state import pack, unpack
from acclimate.verdict import Verdict, judge, label_free_score
from acclimate.words import Keep

__all__ = ["AdaptationRun", "Predictions"]

EVALUATION = -1
"""The epoch number whose shuffled order all evaluation passes share."""


@dataclass(frozen=True)
class Predictions:
    """Predicted class and its probability, one per image, on the CPU."""

    classes: Tensor
    confidence: Tensor


@dataclass
class Progress:
    """Where the run is, and what it must not forget: all of it goes into a checkpoint."""

    epoch: int = 0
    batch: int = 0
    stopped: bool = False
    best_score: float = float("-inf")
    best_epoch: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)
    source_classes: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    source_confidence: Tensor = field(default_factory=lambda: torch.zeros(0))


class AdaptationRun:
    """One adaptation of one model to one set of images."""

    def __init__(
        self,
        learner: Learner,
        images: ImageSource,
        *,
        guard: Guard,
        keep: Keep,
        seed: int,
        device: torch.device,
        progress: bool,
        checkpoint: Callable[[AdaptationRun], None] = lambda run: None,
    ) -> None:
        self.learner, self.images, self.guard, self.keep = learner, images, guard, keep
        self.seed, self.device, self.show_progress = seed, device, progress
        self.checkpoint = checkpoint
        self.history = History()
        self.progress = Progress()
        self.watch = Watch()
        self.tally = Tally()
        self._pool: StatisticsPool | None = None
        self._batch_classes: Tensor | None = None

    # What a checkpoint holds.

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and a JSON record from which :meth:`load_state` goes on."""
        tensors = {f"learner/{k}": v for k, v in self.learner.state_tensors().items()}
        for name in ("progress", "watch", "tally"):
            tensors |= {f"{name}/{k}": v for k, v in pack(getattr(self, name)).items()}
        return tensors, {"history": self.history.to_dict()}

    def load_state(self, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
        """Go on from a checkpoint."""

        def under(name: str) -> dict[str, Tensor]:
            return {k[len(name) + 1 :]: v for k, v in tensors.items() if k.startswith(f"{name}/")}

        self.learner.load_state_tensors(under("learner"))
        for name in ("progress", "watch", "tally"):
            unpack(getattr(self, name), under(name))
        self.history = History.from_dict(record["history"])

    # The run, from top to bottom.

    def execute(self) -> tuple[Predictions, Verdict]:
        """Run, or finish, the adaptation; the learner's model is the plain model afterwards."""
        if self.history.source is None and (self.guard.action != "off" or self._labelled):
            self._source_pass()
        if self.learner.recipe.learns:
            if not self.watch.older:
                self._before_learning()
            while self.progress.epoch < self.learner.recipe.epochs and not self.progress.stopped:
                self._epoch()
            if self.keep == "best" and self.progress.best:
                self._restore_best()
        return self._hand_back()

    def _source_pass(self) -> None:
        tally = Tally()
        predictions = self._pass(
            "source model", tally, lambda batch: self.learner.source_forward(batch.images).logits
        )
        self.progress.source_classes = predictions.classes
        self.progress.source_confidence = predictions.confidence
        self.history.source = tally.scores()
        self.checkpoint(self)

    def _before_learning(self) -> None:
        reference = 0.0
        if self.guard.action != "off" or self.keep == "best":
            self._record_start(self._consider(epoch=0))
            assert self.history.start is not None
            source = self.history.source or self.history.start
            reference = max(self.history.start.diversity, source.diversity)
        self.watch.start(self.learner, reference=reference)

    def _record_start(self, scores: Scores) -> None:
        self.history.start = scores
        if self._pool is not None:
            self.history.statistics_shift = self.learner.statistics.distances(self._pool)

    def _epoch(self) -> None:
        learner, progress = self.learner, self.progress
        if progress.batch == 0:
            learner.start_epoch()
            self.tally = Tally()
        order = epoch_order(len(self.images), seed=self.seed, epoch=progress.epoch)
        title = f"epoch {progress.epoch + 1}/{learner.recipe.epochs}"
        for batch in self._batches(title, order=order, start=progress.batch):
            self._learn(batch)
            progress.batch += 1
            if progress.stopped:
                break
            self.checkpoint(self)
        self._end_epoch()

    def _learn(self, batch: Batch) -> None:
        result = self.learner.step(batch.images)
        source = self._source_of(batch)
        self.tally.update(
            result.logits, labels=self._labels_of(batch), source=source, loss=result.loss
        )
        if self.guard.action == "off":
            return
        self.watch.see(result.logits, result.loss, source_classes=source)
        if self.watch.due(self.guard):
            trouble = self.watch.check(self.guard, self.learner)
            if trouble:
                self._react(trouble)

    def _react(self, trouble: str) -> None:
        step = self.learner.steps
        action = "recorded"
        if self.guard.action == "rollback":
            action = f"went back to step {self.watch.roll_back(self.learner)} and stopped"
        elif self.guard.action == "stop":
            action = "stopped"
        elif self.guard.action == "warn":
            action = "warned"
            warnings.warn(f"step {step}: {trouble}", AcclimateWarning, stacklevel=2)
        self.history.events.append(Event(step=step, trouble=trouble, action=action))
        self.progress.stopped = self.guard.acts

    def _end_epoch(self) -> None:
        progress = self.progress
        before = self.tally.scores()
        progress.epoch, progress.batch = progress.epoch + 1, 0
        after = self._consider(epoch=progress.epoch)
        self.history.epochs.append(
            EpochRecord(
                epoch=progress.epoch,
                before_update=before,
                after_epoch=after,
                drift=drift(self.learner),
            )
        )
        self.checkpoint(self)

    def _consider(self, *, epoch: int) -> Scores:
        """Score the present state without labels; remember it if it is the best so far."""
        # Statistics are gathered where they may be used: at the start for the verdict, and at the
        # end for the model handed back.
        edge = epoch in (0, self.learner.recipe.epochs)
        scores = self._batch_statistics_pass(f"after epoch {epoch}", gather=edge)
        score = label_free_score(scores)
        sane = drift(self.learner) <= self.guard.max_drift
        if self.keep == "best" and sane and score > self.progress.best_score:
            self.progress.best_score, self.progress.best_epoch = score, epoch
            state = self.learner.state_tensors(optimizer=False)
            self.progress.best = {k: v.clone() for k, v in state.items()}
        return scores

    def _restore_best(self) -> None:
        self.history.kept_epoch = self.progress.best_epoch
        if self.progress.best_epoch != self.progress.epoch:
            self.learner.load_state_tensors(self.progress.best)
            self._pool = None

    def _batch_statistics_pass(self, title: str, *, gather: bool = True) -> Scores:
        """All images with the recipe's statistics; gathers what the exported model will need."""
        tally = Tally()
        weight = self.learner.recipe.normalization.export_weight(self.learner.batch_size)
        self._pool = self.learner.statistics.pool() if gather and weight else None

        def forward(batch: Batch) -> Tensor:
            return self.learner.forward(batch.images, learning=False).logits

        # Shuffled: folders are sorted by class, and batches of one class have odd statistics.
        order = epoch_order(len(self.images), seed=self.seed, epoch=EVALUATION)
        try:
            self._batch_classes = self._pass(title, tally, forward, order=order).classes
        finally:
            if self._pool is not None:
                self._pool.close()
        return tally.scores()

    def _hand_back(self) -> tuple[Predictions, Verdict]:
        learner = self.learner
        weight = learner.recipe.normalization.export_weight(learner.batch_size)
        adapts_statistics = bool(weight and learner.statistics.layers)
        if adapts_statistics or learner.recipe.learns:
            if self._batch_classes is None or (adapts_statistics and self._pool is None):
                scores = self._batch_statistics_pass("statistics")
                if not learner.recipe.learns:
                    self._record_start(scores)
        statistics = learner.statistics
        source_buffers = statistics.buffers()
        if adapts_statistics and self._pool is not None:
            statistics.write(self._pool, weight=weight)
        model = learner.release()

        @torch.no_grad()
        def forward(batch: Batch) -> Tensor:
            return learner.forward_plain(batch.images)

        tally = Tally()
        predictions = self._pass("predictions", tally, forward)
        self.history.final = tally.scores()
        if self._batch_classes is not None:
            gap = (predictions.classes != self._batch_classes).double().mean()
            self.history.statistics_gap = float(gap)
        verdict = judge(self.history, went_wrong=self._unmended())
        if verdict.word == "harmful" and self.guard.acts:
            learner.restore_source()
            statistics.load_buffers(source_buffers)
            self.history.final = self.history.source
            predictions = Predictions(self.progress.source_classes, self.progress.source_confidence)
            verdict = Verdict("refused", f"{verdict.reason}; the source model is handed back")
        assert not model.training
        return predictions, verdict

    def _unmended(self) -> str | None:
        """Trouble that is still in the state handed back, in words."""
        events = self.history.events
        if not events or self.guard.action == "rollback" or self.history.kept_epoch is not None:
            return None
        return f"step {events[-1].step}: {events[-1].trouble}"

    # Passes over the images.

    @property
    def _labelled(self) -> bool:
        return self.images.labels is not None

    def _labels_of(self, batch: Batch) -> Tensor | None:
        labels = self.images.labels
        return None if labels is None else labels[batch.indices].to(self.device)

    def _source_of(self, batch: Batch) -> Tensor | None:
        classes = self.progress.source_classes
        return classes[batch.indices].to(self.device) if len(classes) else None

    def _batches(
        self, title: str, *, order: Tensor | None = None, start: int = 0
    ) -> Iterator[Batch]:
        size = self.learner.batch_size
        yield from tqdm(
            batches(self.images, batch_size=size, order=order, device=self.device, start=start),
            desc=title,
            initial=start,
            total=batch_count(len(self.images), size),
            disable=not self.show_progress,
            delay=0.5,
            leave=False,
            unit="batch",
        )

    @torch.no_grad()
    def _pass(
        self,
        title: str,
        tally: Tally,
        forward: Callable[[Batch], Tensor],
        *,
        order: Tensor | None = None,
    ) -> Predictions:
        classes = torch.zeros(len(self.images), dtype=torch.int64)
        confidence = torch.zeros(len(self.images))
        for batch in self._batches(title, order=order):
            logits = forward(batch)
            labels = self._labels_of(batch)
            _check_labels(labels, logits)
            top = tally.update(logits, labels=labels, source=self._source_of(batch))
            classes[batch.indices] = top.cpu()
            confidence[batch.indices] = logits.float().softmax(dim=1).amax(dim=1).cpu()
        return Predictions(classes, confidence)


def _check_labels(labels: Tensor | None, logits: Tensor) -> None:
    if labels is not None and len(labels) and int(labels.max()) >= logits.shape[1]:
        raise AcclimateError(
            f"expected labels below the model's {logits.shape[1]} classes, got {int(labels.max())}; "
            "is this the model for these classes?"
        )
