"""One pass of a model over labelled images, and how much of the source is forgotten."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.adaptation.adapt import adapt
from acclimate.adaptation.passes import Passes, PredictionBuffer
from acclimate.data import ImageSource
from acclimate.errors import AcclimateError
from acclimate.metrics import (
    Calibration,
    ErrorCounts,
    Figure,
    Scoring,
    filtered_error,
    unmappable_share,
)
from acclimate.models import LoadedModel
from acclimate.models.device import choose_device, floating_dtype
from acclimate.models.layers import batch_norm_layers
from acclimate.models.outputs import checked_logits, logits_of
from acclimate.result import AdaptationResult
from acclimate.text import Score, Speed

__all__ = ["Evaluation", "Forgetting", "Trials", "evaluate", "forgetting"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a model did on some images.

    Attributes:
        errors: counts of wrong predictions, top-1 and top-5.
        calibration: None where predictions are counted through a map, whose confidence says little.
        predictions: the output with the largest value, one per image, on the CPU.
        labels: as the images brought them.
    """

    errors: ErrorCounts
    calibration: Calibration | None
    predictions: Tensor
    labels: Tensor

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        wrong, labelled = self.errors.counts()
        top5 = self.errors.counts(5)[0] if (self.errors.answers or 0) >= 5 else None
        plain = {"images": self.errors.images, "labelled": labelled, "wrong": wrong}
        plain |= {} if top5 is None else {"wrong_top5": top5}
        if self.calibration is None:
            return plain
        curve = [vars(point) for point in self.calibration.reliability()]
        return {**plain, "ece": self.calibration.ece().value, "reliability": curve}

    def mapped(self, label_of: Tensor | None) -> dict[str, Any]:
        """Share of predictions that a map from outputs has no label for, the error of the rest."""
        if label_of is None:
            return {}
        return {
            "filtered_error": filtered_error(self.predictions, self.labels, label_of).error,
            "unmappable_percent": unmappable_share(self.predictions, label_of).percent,
        }


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    images: ImageSource,
    *,
    batch_size: int = 128,
    device: str | torch.device | None = None,
    progress: bool = True,
    title: str = "evaluate",
) -> Evaluation:
    """Score a model unadapted on labelled images. It is left on ``device`` and in ``eval()``.

    >>> from acclimate.data import open_images
    >>> data = open_images(torch.eye(6).view(6, 6, 1, 1), labels=[0, 1, 2, 3, 4, 0])
    >>> print(evaluate(nn.Flatten(), data, progress=False).errors.error())
    16.7 % (6 images)
    """
    if images.labels is None:
        raise AcclimateError(
            "expected labelled images to score the model on, got none with a label; put them into "
            "folders named by class, or give labels"
        )
    if batch_size < 1:
        raise AcclimateError(f"expected batch_size >= 1, got {batch_size}")
    where = choose_device(device)
    model = model.to(where).eval()
    passes = Passes(
        images,
        batch_size=batch_size,
        device=where,
        dtype=floating_dtype(model),
        show_progress=progress,
        room=0,  # there is no second pass for which images could stay
    )
    errors = ErrorCounts()
    scoring = None if images.scoring is None else images.scoring.on(where)
    calibration = Calibration() if scoring is None or scoring.label_of is None else None
    predictions = torch.zeros(len(images), dtype=torch.int64, device=where)

    def score(logits: Tensor, rows: Tensor) -> None:
        labels = passes.labels_of(rows)
        assert labels is not None
        errors.update(logits, labels, scoring=scoring)
        if calibration is not None:
            calibration.update(*_among_the_asked(logits, labels, scoring))
        predictions[rows] = logits.argmax(dim=1)

    buffer = PredictionBuffer(score)
    for number, batch in enumerate(passes.batches(title)):
        if number == 0:
            logits = checked_logits(model, batch.images)
            _check_labels(images, logits.shape[1])
        else:
            logits = logits_of(model(batch.images))
        buffer.add(logits, batch.rows)
    buffer.flush()
    return Evaluation(
        errors=errors, calibration=calibration, predictions=predictions.cpu(), labels=images.labels
    )


def _check_labels(images: ImageSource, outputs: int) -> None:
    """Refuse labels the model has no output for after the first batch, not after the last."""
    assert images.labels is not None
    highest = int(images.labels.max())
    if images.scoring is not None:
        images.scoring.check(outputs)
    elif highest >= outputs:
        raise AcclimateError(
            f"expected labels below the model's {outputs} outputs, got {highest}; is this the "
            "model for these classes?"
        )


def _among_the_asked(
    logits: Tensor, labels: Tensor, scoring: Scoring | None
) -> tuple[Tensor, Tensor]:
    """Logits and labels over the outputs that may be predicted, counted anew."""
    if scoring is None or scoring.keep is None:
        return logits, labels
    keep = scoring.on(logits.device).keep
    assert keep is not None
    place = torch.full((logits.shape[1] + 1,), -1, device=logits.device)  # the last is label -1
    place[keep] = torch.arange(len(keep), device=logits.device)
    return logits[:, keep], place[labels]


@dataclass(frozen=True, kw_only=True)
class Forgetting:
    """Error on clean images: of the source model, and of the adapted one.

    Attributes:
        before: of the source model, unadapted.
        after: of the adapted model, its statistics estimated anew on the clean images.
        statistics: False where the model has no batch norm, and nothing was to be estimated.
    """

    before: Figure
    after: Figure
    statistics: bool

    @property
    def points(self) -> float:
        """Points of error the adapted model lost on the source."""
        return self.after.value - self.before.value

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "before": self.before.value,
            "after": self.after.value,
            "images": self.after.images,
            "statistics_estimated_anew": self.statistics,
        }


def forgetting(
    source: nn.Module | ErrorCounts,
    adapted: nn.Module,
    clean: ImageSource,
    *,
    batch_size: int = 128,
    device: str | torch.device | None = None,
    progress: bool = True,
) -> Forgetting:
    """Compare source and adapted model on the source's own images.

    Adapted statistics belong to the shifted images, and would make any model fail on clean ones.
    As in the paper they are estimated anew, so that what is left is what was learnt.

    Args:
        source: the model before adaptation, or its counts on ``clean`` where they are known.
        adapted: the model afterwards.
        clean: labelled images of the source distribution.
        batch_size: images at a time.
        device: where to run; CUDA when there is one.
        progress: show bars on stderr.
    """
    if isinstance(source, nn.Module):
        source = evaluate(
            source, clean, batch_size=batch_size, device=device, progress=progress, title="clean"
        ).errors
    statistics = bool(batch_norm_layers(adapted))
    if statistics:
        adapted = adapt(
            adapted,
            clean,
            "bn",
            batch_size=batch_size,
            device=device,
            guard="off",
            progress=progress,
        ).model
    after = evaluate(
        adapted, clean, batch_size=batch_size, device=device, progress=progress, title="clean"
    ).errors
    return Forgetting(before=source.error(), after=after.error(), statistics=statistics)


@dataclass(kw_only=True)
class Trials:
    """How models are adapted to images and scored: the same for `evaluate` and the jobs of a plan.

    Attributes:
        device: where to run.
        score: predictions after all "epochs" of a run, or at its "end" alone.
        speed: as in `acclimate.adapt`.
        progress: show bars on stderr.
    """

    device: torch.device
    score: Score = "epochs"
    speed: Speed = "auto"
    progress: bool = True
    _clean: tuple[Hashable, ErrorCounts] | None = None

    def adapt(
        self,
        loaded: LoadedModel,
        images: ImageSource,
        recipe: str,
        *,
        options: Mapping[str, Any],
        batch_size: int | None,
        seed: int,
    ) -> AdaptationResult:
        """Adapt a model, and leave a collapse to show in the scores."""
        return adapt(
            loaded,
            images,
            recipe,
            options=dict(options),
            batch_size=batch_size,
            score=self.score,
            guard="observe",  # collapse has to show in a table, not be mended
            device=self.device,
            seed=seed,
            speed=self.speed,
            progress=self.progress,
        )

    def evaluate(
        self, model: nn.Module, images: ImageSource, *, batch_size: int, title: str = "evaluate"
    ) -> Evaluation:
        """Score a model unadapted."""
        return evaluate(
            model,
            images,
            batch_size=batch_size,
            device=self.device,
            progress=self.progress,
            title=title,
        )

    def forgetting(
        self,
        source: nn.Module,
        adapted: nn.Module,
        clean: ImageSource,
        *,
        key: Hashable,
        batch_size: int,
    ) -> dict[str, Any]:
        """What is lost on clean images; ``key`` names model and images, scored once in a row."""
        if self._clean is None or self._clean[0] != key:
            before = self.evaluate(source, clean, batch_size=batch_size, title="clean")
            self._clean = key, before.errors
        return forgetting(
            self._clean[1],
            adapted,
            clean,
            batch_size=batch_size,
            device=self.device,
            progress=self.progress,
        ).to_dict()
