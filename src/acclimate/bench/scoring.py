"""What is measured of a model on labelled images: errors, calibration, what it has forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.adaptation.adapt import adapt
from acclimate.adaptation.passes import Passes, PredictionBuffer
from acclimate.bench.record import Balance, Errors, Forgetting, LabelFreeScores, Record, Signals
from acclimate.data import ClassList, ImageSource
from acclimate.errors import AcclimateError
from acclimate.guard.history import History
from acclimate.guard.verdict import label_free_score
from acclimate.metrics import (
    Calibration,
    ErrorCounts,
    Scores,
    Scoring,
    confusions,
    filtered_error,
    most_predicted,
    unmappable_share,
)
from acclimate.models.checks import check_layers
from acclimate.models.device import choose_device, floating_dtype
from acclimate.models.layers import batch_norm_layers
from acclimate.models.outputs import checked_logits, logits_of
from acclimate.result import AdaptationResult

__all__ = [
    "Evaluation",
    "adapted_record",
    "evaluate",
    "evaluated_record",
    "forgetting",
    "want_labels",
]

_MOST_PREDICTED = 5
_CONFUSIONS = 10
_COUNTED = 200
"""Up to so many classes it is stored how often each was predicted; else how even it was."""


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


def want_labels(images: ImageSource) -> Tensor:
    """The labels, or the error that says why there have to be some."""
    if images.labels is None:
        raise AcclimateError(
            "expected labelled images to score the model on, got none with a label; put them into "
            "folders named by class, or give labels"
        )
    return images.labels


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
    labels = want_labels(images)
    if batch_size < 1:
        raise AcclimateError(f"expected batch_size >= 1, got {batch_size}")
    where = choose_device(device)
    check_layers(model)
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
        own = passes.labels_of(rows)
        assert own is not None
        errors.update(logits, own, scoring=scoring)
        if calibration is not None:
            calibration.update(*_among_the_asked(logits, own, scoring))
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
        errors=errors, calibration=calibration, predictions=predictions.cpu(), labels=labels
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
            estimate=False,
            progress=progress,
        ).model
    after = evaluate(
        adapted, clean, batch_size=batch_size, device=device, progress=progress, title="clean"
    ).errors
    lost = after.error()
    return Forgetting(
        before=source.error().value,
        after=lost.value,
        images=lost.images,
        statistics_estimated_anew=statistics,
    )


def evaluated_record(scores: Evaluation, images: ImageSource, classes: ClassList | None) -> Record:
    """What is recorded of an unadapted model."""
    error = scores.errors.error().value
    wrong, labelled = scores.errors.counts()
    record = Record(
        errors=Errors(unadapted=error, final=error),
        images=scores.errors.images,
        labelled=labelled,
        wrong=wrong,
        wrong_top5=_top5(scores),
    )
    found = _mapped(scores, images, classes)
    return replace(record, **_calibrated(scores.calibration), **found)


def adapted_record(
    result: AdaptationResult,
    images: ImageSource,
    classes: ClassList | None,
    *,
    again: Evaluation | None = None,
) -> Record:
    """What is recorded of an adapted model.

    Args:
        result: what ``adapt`` returned.
        images: that were adapted to.
        classes: the model's.
        again: the scores of a pass of its own, for what a run does not measure: top-5 errors,
            confidences over some of the outputs, predictions that a map has no label for.
    """
    history, final = result.history, result.history.final
    assert final is not None
    epochs = history.epochs
    record = Record(
        errors=_errors(history),
        images=len(images),
        labelled=final.labelled,
        wrong=None if final.error is None else round(final.error * final.labelled / 100),
        verdict=result.verdict.word,
        reason=result.verdict.reason,
        events=tuple(vars(event) for event in history.events),
        scores=tuple(_score(epoch.after_epoch) for epoch in epochs),
        label_free=LabelFreeScores(
            source=_signals(history.source),
            start=_signals(history.start),
            after_epoch=tuple(_signals(epoch.after_epoch) for epoch in epochs),
            final=_signals(final),
        ),
        drift=tuple(epoch.drift for epoch in epochs),
        start_balance=_balance(history.start),
        balance=tuple(_balance(epoch.after_epoch) for epoch in epochs),
        statistics_gap=history.statistics_gap,
        batch_norm_layers=len(batch_norm_layers(result.model)),
        recipe=result.recipe.to_dict(),
        weights=result.record.weights,
        batch_size=result.record.batch_size,
        speed=result.record.acceleration,
        notes=tuple(result.notes),
    )
    if again is not None:
        found = _mapped(again, images, classes)
        return replace(record, wrong_top5=_top5(again), **_calibrated(again.calibration), **found)
    if images.labels is None or images.scoring is not None:
        return record
    calibration = calibration_of(result.confidence, result.predictions, images.labels)
    return replace(record, **_calibrated(calibration))


def _top5(scores: Evaluation) -> int | None:
    return scores.errors.counts(5)[0] if (scores.errors.answers or 0) >= 5 else None


def _calibrated(calibration: Calibration | None) -> Mapping[str, Any]:
    # A model whose predictions are no numbers has no confidence to judge.
    if calibration is None or int(calibration.nan) or not int(calibration.count.sum()):
        return {}
    curve = tuple(vars(point) for point in calibration.reliability())
    return {"ece": calibration.ece().value, "reliability": curve}


def _mapped(
    scores: Evaluation, images: ImageSource, classes: ClassList | None
) -> Mapping[str, Any]:
    """Of a data set that is scored through a map from outputs: how many have a label there."""
    label_of = None if images.scoring is None else images.scoring.label_of
    if label_of is None:
        return {}
    predictions, labels = scores.predictions, scores.labels
    outputs = classes.names if classes else [str(index) for index in range(len(label_of))]
    most = most_predicted(predictions, outputs, _MOST_PREDICTED, label_of=label_of)
    fields: dict[str, Any] = {
        "filtered_error": filtered_error(predictions, labels, label_of).error,
        "unmappable_percent": unmappable_share(predictions, label_of).percent,
        "most_predicted": tuple(vars(each) for each in most.classes),
    }
    asked = images.class_names or ()
    if len(asked) == int(label_of.max()) + 1:
        found = confusions(predictions, labels, label_of, asked, k=_CONFUSIONS)
        fields["confusions"] = tuple(vars(pair) for pair in found.pairs)
        fields["answered_as_another"] = tuple(found.off_diagonal)
    return fields


def _errors(history: History) -> Errors:
    epochs, start = history.epochs, _error(history.start)
    return Errors(
        unadapted=_error(history.source),
        start=start,
        # Where nothing is learnt, each prediction with its batch's statistics is the online one.
        online=_error(epochs[0].before_update) if epochs else start,
        before_update=tuple(_error(epoch.before_update) for epoch in epochs),
        after_epoch=tuple(_error(epoch.after_epoch) for epoch in epochs),
        final=_error(history.final),
    )


def _error(scores: Scores | None) -> float | None:
    return None if scores is None else scores.error


def _score(scores: Scores | None) -> float | None:
    return None if scores is None or scores.agreement is None else label_free_score(scores)


def _signals(scores: Scores | None) -> Signals:
    if scores is None:
        return Signals()
    return Signals(
        agreement=scores.agreement,
        confidence=scores.confidence,
        entropy=scores.entropy,
        diversity=scores.diversity,
        nuclear_norm=scores.nuclear_norm,
    )


def _balance(scores: Scores | None) -> Balance:
    if scores is None or not scores.class_counts:
        return Balance()
    counts = scores.class_counts
    return Balance(
        classes=scores.diversity,
        largest=max(counts) / max(sum(counts), 1),
        unused=sum(count == 0 for count in counts),
        counts=tuple(counts) if len(counts) <= _COUNTED else (),
    )


def calibration_of(
    confidence: Tensor, predictions: Tensor, labels: Tensor, *, bins: int = 15
) -> Calibration:
    """What `Calibration` would have summed up over the logits; images with label -1 are left out.

    >>> confidence, predictions = torch.tensor([0.5, 0.999]), torch.tensor([0, 0])
    >>> print(calibration_of(confidence, predictions, torch.tensor([0, 1]), bins=2).ece())
    0.250 (2 images)
    """
    usable = (labels >= 0) & ~confidence.isnan()
    edges = torch.linspace(0, 1, bins + 1)
    # Bins have their lower end; a confidence of exactly 1 has one to itself.
    index = (torch.bucketize(confidence.nan_to_num(), edges, right=True) - 1).clamp(0, bins)
    whole = torch.zeros(bins + 1, dtype=torch.int64)
    right = usable & (predictions == labels)
    return Calibration(
        bins=bins,
        images=len(labels),
        count=whole.index_add(0, index, usable.long()),
        right=whole.index_add(0, index, right.long()),
        confidence=whole.double().index_add(
            0, index, torch.where(usable, confidence, 0.0).double()
        ),
        nan=confidence.isnan().sum(),
    )
