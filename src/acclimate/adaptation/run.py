"""The run of :func:`acclimate.adapt`: source pass, epochs, statistics, predictions; resumable."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from acclimate import parallel
from acclimate.acceleration import Acceleration
from acclimate.adaptation.folder import State
from acclimate.adaptation.passes import Passes, PredictionBuffer, Predictions
from acclimate.callbacks import Callback, StepRecord
from acclimate.checkpoint import fingerprint
from acclimate.data import Batch, batch_count, epoch_order
from acclimate.errors import AcclimateWarning
from acclimate.guard.estimate import (
    Interval,
    estimate_change,
    estimate_error,
    estimate_level,
)
from acclimate.guard.evidence import Evidence, observe
from acclimate.guard.guard import Guard, Watch, drift
from acclimate.guard.history import EpochRecord, Event, History
from acclimate.guard.verdict import Verdict, judge, label_free_score
from acclimate.learner.learner import Learner
from acclimate.learner.state import pack, under, unpack
from acclimate.metrics import Scores, Tally
from acclimate.parts.adapters import remove_adapters
from acclimate.parts.statistics import StatisticsPool
from acclimate.text import Keep, Score

__all__ = ["AdaptationRun"]

EVALUATION = -1
"""The epoch whose shuffled order all evaluation passes share."""

OBSERVED = 1000
"""So many of the images are looked at in several views, for the estimates."""


@dataclass
class Progress:
    """Where the run is, and what it must not forget: all of it goes into a checkpoint."""

    epoch: int = 0
    batch: int = 0
    stopped: bool = False
    best_score: float = float("-inf")
    best_epoch: int = 0
    cost: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)
    source_classes: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    source_confidence: Tensor = field(default_factory=lambda: torch.zeros(0))
    source_probability: Tensor = field(default_factory=lambda: torch.zeros(0))


class AdaptationRun:
    """One adaptation of one model to one set of images."""

    def __init__(
        self,
        learner: Learner,
        passes: Passes,
        *,
        guard: Guard,
        keep: Keep,
        score: Score = "epochs",
        estimate: bool = True,
        patience: int | None = None,
        seed: int,
        write_checkpoint: Callable[[Callable[[], State]], None] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self._called = callbacks if parallel.is_main() else ()
        self.learner, self.passes, self.guard, self.keep = learner, passes, guard, keep
        self.score, self.estimate, self.patience, self.seed = score, estimate, patience, seed
        self._write_checkpoint = write_checkpoint
        self.history = History()
        self.progress = Progress()
        self.watch = Watch()
        self.tally = Tally()
        self._buffer = PredictionBuffer(self._score)
        self._source = self.progress.source_classes  # on the device while an epoch runs
        self._pool: StatisticsPool | None = None
        self._batch_classes: Tensor | None = None
        self._seen: dict[str, Evidence] = {}

    # What a checkpoint holds.

    def state(self) -> State:
        """What :meth:`load_state` resumes from."""
        self.progress.cost = self.learner.cost
        tensors = {f"learner/{k}": v for k, v in self.learner.state_tensors().items()}
        for name in ("progress", "watch", "tally"):
            tensors |= {f"{name}/{k}": v for k, v in pack(getattr(self, name)).items()}
        tensors |= {f"answers/{k}": v for k, v in self._buffer.pack().items()}
        for name, evidence in self._seen.items():
            tensors |= {f"seen/{name}/{k}": v for k, v in pack(evidence).items()}
        acceleration = asdict(self.learner.network.acceleration)
        return tensors, {"history": self.history.to_dict(), "acceleration": acceleration}

    def load_state(self, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        self.learner.load_state_tensors(under("learner/", tensors))
        for name in ("progress", "watch", "tally"):
            unpack(getattr(self, name), under(f"{name}/", tensors))
        self._buffer.unpack(under("answers/", tensors), self.passes.device)
        for name in ("unadapted", "start"):
            if evidence := under(f"seen/{name}/", tensors):
                classes = int(evidence.pop("classes"))
                self._seen[name] = Evidence(classes=classes, **evidence)
        self.learner.cost = self.progress.cost
        self.history = History.from_dict(record["history"])
        # The same acceleration to the end, even if another would be faster today.
        self.learner.network.accelerate(Acceleration(**record["acceleration"]), verified=True)

    def _checkpoint(self) -> None:
        if self._write_checkpoint is not None:
            self._write_checkpoint(self.state)

    # The run, from top to bottom.

    def execute(self) -> tuple[Predictions, Verdict]:
        """Run, or finish, the adaptation; the learner's model is the plain model afterwards."""
        labelled = self.passes.images.labels is not None
        self._unadapted()
        if self.history.source is None and (self._compares or labelled):
            self._source_pass()
        if not self.watch.older:
            self._settle()
        if self.learner.recipe.steps:
            if not self.watch.older:
                self._before_learning()
            while self.progress.epoch < self.learner.recipe.epochs and not self.progress.stopped:
                self._epoch()
            if self.keep == "best" and self.progress.best:
                self._restore_best()
        return self._finish()

    @property
    def _compares(self) -> bool:
        """Whether predictions are compared with the source model's."""
        return self.guard.action != "off" or self.keep == "best"

    def _source_pass(self) -> None:
        seen = self._unadapted()
        level = None if seen is None else estimate_level(seen)
        calibrated = None if seen is None or level is None else _temperature_for(seen, level)
        predictions, self.history.source = self._pass(
            "source model",
            lambda batch: self.learner.source_forward(batch.images).logits,
            temperature=calibrated or 1.0,
        )
        self._remember_source(predictions)
        self._checkpoint()

    def _remember_source(self, predictions: Predictions) -> None:
        progress = self.progress
        progress.source_classes = predictions.classes
        progress.source_confidence = predictions.confidence
        progress.source_probability = predictions.probability

    @property
    def source(self) -> Predictions | None:
        """What the unadapted model predicts; None where it was not asked."""
        progress = self.progress
        if not len(progress.source_probability):
            return None
        return Predictions(
            progress.source_classes, progress.source_confidence, progress.source_probability
        )

    def _settle(self) -> None:
        """Let a running estimate of the statistics settle on the images before anything else."""
        batches = batch_count(len(self.passes.images), self.learner.batch_size)
        for _ in range(self.learner.recipe.normalization.settling_passes(batches)):
            self._pass(
                "running statistics",
                lambda batch: self.learner.forward(self._images(batch)).logits,
                shuffled=True,
            )

    def _images(self, batch: Batch) -> Tensor:
        """This process's images of a batch, the learner knowing how many there are in all."""
        self.learner.set_total(batch.images, len(batch.indices))
        return batch.images

    def _before_learning(self) -> None:
        if not self._compares:
            self.watch.start(self.learner)
            return
        start, source = self._score_epoch(0), self.history.source
        assert source is not None
        assert start.agreement is not None
        self._record_start(start)
        if self._pool is not None:  # learning is judged apart from new statistics
            self._remember("start", self._exported("new statistics"))
        self._note_if_best(0, start)
        self.watch.start(
            self.learner,
            reference=max(start.diversity, source.diversity),
            flips=1 - start.agreement,
            doubted=1 - source.confidence,
        )

    def _record_start(self, scores: Scores) -> None:
        self.history.start = scores
        if self._pool is not None:
            self.history.statistics_shift = self.learner.statistics.distances(self._pool)

    @property
    def _by_estimate(self) -> bool:
        """Whether the best state is chosen by the estimated error: the plain model's."""
        return self.keep == "best" and self.estimate and self.learner.recipe.exports

    def _unadapted(self) -> Evidence | None:
        """What the unadapted model predicts for some of the images, seen in several ways."""
        if "unadapted" not in self._seen:
            self._remember(
                "unadapted", self._observe("unadapted model, in several views", self._source_logits)
            )
        return self._seen.get("unadapted")

    def _remember(self, name: str, evidence: Evidence | None) -> None:
        if evidence is not None:
            self._seen[name] = evidence

    def _exported(self, title: str) -> Evidence | None:
        """The same of the plain model that would be returned now."""
        statistics = self.learner.statistics
        if not self.learner.recipe.exports:
            return None
        own = statistics.buffers()
        statistics.release()
        if self._pool is not None:
            statistics.write(self._pool, weight=self._export_weight)
        try:
            return self._observe(f"{title}, in several views", self.learner.forward_plain)
        finally:
            statistics.load_buffers(own)

    @property
    def _export_weight(self) -> float:
        """How much of the plain model's statistics are those of the images."""
        return self.learner.recipe.normalization.export_weight(self.learner.batch_size)

    def _epoch(self) -> None:
        learner, progress = self.learner, self.progress
        self._source = progress.source_classes.to(self.passes.device)
        if progress.batch == 0:
            learner.start_epoch()
            self.tally = Tally()
        title, order = (
            f"epoch {progress.epoch + 1}/{learner.recipe.epochs}",
            self._order(progress.epoch),
        )
        for batch in self.passes.batches(title, order=order, start=progress.batch):
            self._learn(batch)
            progress.batch += 1
            if progress.stopped:
                break
            self._checkpoint()
        self._end_epoch()

    def _learn(self, batch: Batch) -> None:
        result = self.learner.step(self._images(batch))
        step = StepRecord(step=self.learner.steps, images=len(batch.indices), loss=result.loss)
        for callback in self._called:
            callback.on_step_end(step)
        logits = self.passes.whole(result.logits, batch)
        self._buffer.add(logits, batch.rows)
        if result.loss is not None:
            self.tally.add_loss(result.loss * len(logits), images=len(logits))
        if self.guard.action == "off":
            return
        source = self._source[batch.rows] if len(self._source) else None
        self.watch.see(logits, result.loss, source_classes=source)
        if self.watch.steps >= self.guard.check_every:
            self._check()

    def _score(self, logits: Tensor, rows: Tensor) -> None:
        self.passes.score(self.tally, logits, rows, source=self._source)

    def _check(self) -> None:
        """Let the guard judge the steps since the last check, and take its action."""
        trouble = self.watch.check(self.guard, self.learner)
        if trouble is None:
            return
        step, action = self.learner.steps, "recorded"
        if self.guard.action == "rollback":
            action = f"went back to step {self.watch.roll_back(self.learner)} and stopped"
        elif self.guard.action == "stop":
            action = "stopped"
        elif self.guard.action == "warn":
            action = "warned"
            warnings.warn(f"step {step}: {trouble}", AcclimateWarning, stacklevel=2)
        event = Event(step=step, trouble=trouble, action=action)
        self.history.events.append(event)
        for callback in self._called:
            callback.on_event(event)
        self.progress.stopped = self.guard.acts

    def _end_epoch(self) -> None:
        progress = self.progress
        if parallel.active():  # the predictions of one process stand for all
            learnt = {"checksum": fingerprint(self.learner.state_tensors())}
            parallel.same(learnt, f"the processes came apart by step {self.learner.steps}")
        self._buffer.flush()
        before = self.tally.scores()
        progress.epoch, progress.batch = progress.epoch + 1, 0
        last = progress.epoch == self.learner.recipe.epochs
        if last and self.watch.steps:
            self._check()  # the last steps do not fill a window
        after = None
        change = None
        if self.score == "epochs" or last or progress.stopped:
            after = self._score_epoch(progress.epoch)
            change = self._note_if_best(progress.epoch, after)
        else:
            self._pool = self._batch_classes = None  # those of the start are too old to be returned
        self.history.epochs.append(
            EpochRecord(
                epoch=progress.epoch,
                before_update=before,
                after_epoch=after,
                drift=drift(self.learner),
                estimated_change=change,
            )
        )
        for callback in self._called:
            callback.on_epoch_end(self.history.epochs[-1])
        if self.patience and progress.epoch - progress.best_epoch >= self.patience:
            progress.stopped = True
        self._checkpoint()

    def _score_epoch(self, epoch: int) -> Scores:
        """Score the present state without labels."""
        # Statistics are gathered where they may be used: at the start for the verdict, at the end
        # for the model returned, and wherever a plain model is looked at.
        gather = self._by_estimate or epoch in (0, self.learner.recipe.epochs)
        return self._batch_statistics_pass(f"after epoch {epoch}", gather=gather)

    def _note_if_best(self, epoch: int, scores: Scores) -> Interval | None:
        """Keep the present state if it is the best so far; by how much learning changed the error.

        By the estimated error, where the plain model is what counts and shows it; else by a score.
        A state that drifted far is never the best.
        """
        if self.keep != "best":
            return None
        score, change = label_free_score(scores), None
        if self._by_estimate and (start := self._seen.get("start") or self._unadapted()):
            now = self._exported(f"after epoch {epoch}") if epoch else start
            if now is not None:
                shift = self.history.statistics_shift
                change = estimate_change(start, now, shift=shift, statistics=False)
            score = 0.0 if change is None else -change.value
        progress = self.progress
        if score > progress.best_score and drift(self.learner) <= self.guard.max_drift:
            progress.best_score, progress.best_epoch = score, epoch
            progress.best = self.learner.snapshot(optimizer=False)
        return change if epoch else None

    def _restore_best(self) -> None:
        self.history.kept_epoch = self.progress.best_epoch
        if self.progress.best_epoch != self.progress.epoch:
            self.learner.load_state_tensors(self.progress.best)
            self._pool = self._batch_classes = None

    def _batch_statistics_pass(self, title: str, *, gather: bool = True) -> Scores:
        """All images with the recipe's statistics; gathers what the exported model will need."""
        gather = gather and self.learner.recipe.normalization.adapts
        self._pool = self.learner.statistics.pool() if gather else None
        try:
            # Folders are sorted by class, and batches of one class have odd statistics.
            predictions, scores = self._pass(title, self._predict, shuffled=True)
        finally:
            if self._pool is not None:
                self._pool.close()
        self._batch_classes = predictions.classes
        return scores

    def _finish(self) -> tuple[Predictions, Verdict]:
        learner, statistics = self.learner, self.learner.statistics
        learns = learner.recipe.steps
        # Episodes keep nothing: there is no state whose statistics could be returned.
        keeps = learner.recipe.episode is None
        adapts_statistics = bool(
            keeps and learner.recipe.normalization.adapts and statistics.layers
        )
        missing = self._batch_classes is None or (adapts_statistics and self._pool is None)
        if missing and (adapts_statistics or learns):
            scores = self._batch_statistics_pass("statistics")
            if not learns:
                self._record_start(scores)
        source_buffers = statistics.buffers()
        before = self._unadapted()

        def write_statistics() -> None:
            if self._export_weight and self._pool is not None:
                statistics.write(self._pool, weight=self._export_weight)

        predictions = self._final_predictions(write_statistics, before)
        if self._batch_classes is not None:
            gap = (predictions.classes != self._batch_classes).double().mean()
            self.history.statistics_gap = float(gap)
        if self.guard.action == "off":
            return predictions, Verdict("unclear", "the guard was off and judged nothing")
        verdict = judge(self.history, went_wrong=self._unmended())
        if self.progress.stopped and self.history.events and verdict.word != "harmful":
            stopped = f"learning stopped at step {self.history.events[-1].step}"
            verdict = replace(verdict, reason=f"{verdict.reason}; {stopped}")
        if self.guard.acts and not verdict.returns_adapted:
            learner.restore_source()
            remove_adapters(learner.model)
            statistics.load_buffers(source_buffers)
            self.history.statistics_gap = None  # it was of the model that is not returned
            estimate = self.history.estimate
            predictions = self._plain_predictions(before, estimate.before if estimate else None)
            if self.source is not None:  # that model again, and not a second time rounded
                self._remember_source(predictions)
            verdict = verdict.with_source_returned()
        return predictions, verdict

    def _source_logits(self, images: Tensor) -> Tensor:
        return self.learner.source_forward(images).logits

    def _observe(self, title: str, forward: Callable[[Tensor], Tensor]) -> Evidence | None:
        """What a model predicts for some of the images, seen in several ways."""
        if not (self.estimate and self._compares) or self.learner.recipe.episode is not None:
            return None  # an episode learns from each view anew
        return observe(forward, self.passes.sample(title, self._order(EVALUATION)[:OBSERVED]))

    def _final_predictions(
        self, write_statistics: Callable[[], None], before: Evidence | None
    ) -> Predictions:
        """Those of the model returned, or of the recipe where no plain model has them."""
        learner, after = self.learner, None
        title = "adapted model, in several views"
        if learner.recipe.exports:
            write_statistics()
            learner.release()
            after = self._observe(title, learner.forward_plain)
            return self._plain_predictions(after, self._estimate(before, after))
        if not parallel.active():
            after = self._observe(title, learner.predict)
        # In the order of the images, which may carry information.
        predictions, self.history.final = self._pass(
            "predictions",
            self._predict,
            temperature=self._temperature(after, self._estimate(before, after)),
        )
        write_statistics()  # not before: the recipe mixes the batch's with the source's
        learner.release()
        return predictions

    def _plain_predictions(self, seen: Evidence | None, error: Interval | None) -> Predictions:
        """Those of the plain model that is returned."""
        predictions, self.history.final = self._pass(
            "predictions",
            lambda batch: self.learner.forward_plain(batch.images),
            temperature=self._temperature(seen, error),
        )
        return predictions

    def _estimate(self, before: Evidence | None, after: Evidence | None) -> Interval | None:
        """The error of the adapted model; its change is remembered."""
        if before is None or after is None:
            return None
        estimate = estimate_error(
            before,
            after,
            between=self._seen.get("start"),
            learnt=self.learner.steps > 0,
            shift=self.history.statistics_shift,
        )
        self.history.estimate = estimate
        return None if estimate is None else estimate.after

    def _temperature(self, seen: Evidence | None, error: Interval | None) -> float:
        """That of calibrated probabilities, by the estimated error; remembered."""
        found = None
        if seen is not None and error is not None:
            found = _temperature_for(seen, error)
        self.history.temperature = found
        return found or 1.0

    def _unmended(self) -> str | None:
        """Trouble from before the state that is returned, in words: nothing undid it."""
        events = [e for e in self.history.events if e.step <= self.learner.steps]
        return f"step {events[-1].step}: {events[-1].trouble}" if events else None

    def _predict(self, batch: Batch) -> Tensor:
        return self.learner.predict(self._images(batch))

    def _order(self, epoch: int) -> Tensor:
        return epoch_order(len(self.passes.images), seed=self.seed, epoch=epoch)

    def _pass(
        self,
        title: str,
        forward: Callable[[Batch], Tensor],
        *,
        shuffled: bool = False,
        temperature: float = 1.0,
    ) -> tuple[Predictions, Scores]:
        order = self._order(EVALUATION) if shuffled else None
        return self.passes.predict(
            title,
            forward,
            source=self.progress.source_classes,
            order=order,
            temperature=temperature,
        )


def _temperature_for(seen: Evidence, error: Interval) -> float:
    """The temperature at which a model is as confident as it is right, by its estimated error."""
    return seen.temperature(1 - error.value / 100)
