"""What is written down of a run, from what `adapt` and `evaluate` give."""

from __future__ import annotations

from typing import Any

from acclimate.data import ImageSource
from acclimate.evaluation import Evaluation
from acclimate.experiments._calibration import calibration_of
from acclimate.history import History
from acclimate.metrics import Calibration, Scores
from acclimate.normalization import batch_norm_layers
from acclimate.result import AdaptationResult
from acclimate.verdict import label_free_score

__all__ = ["adapted_record", "evaluated_record"]

_COUNTED = 200
"""Up to so many classes it is kept how often each was answered; else how even it was."""

_LABEL_FREE = ("agreement", "confidence", "entropy", "diversity", "nuclear_norm")


def evaluated_record(scores: Evaluation, images: ImageSource) -> dict[str, Any]:
    """Of a model as it is."""
    error = scores.errors.error().value
    answers = scores.mapped(None if images.scoring is None else images.scoring.label_of)
    return {**scores.to_dict(), **answers, "errors": {"unadapted": error, "final": error}}


def adapted_record(
    result: AdaptationResult, images: ImageSource, *, again: Evaluation | None = None
) -> dict[str, Any]:
    """Of an adapted model; ``again`` are its answers where those of the run do not tell enough."""
    history, final = result.history, result.history.final
    assert final is not None
    labelled = final.labelled
    record: dict[str, Any] = {
        "errors": _errors(history),
        "images": len(images),
        "labelled": labelled,
        "wrong": None if final.error is None else round(final.error * labelled / 100),
        "verdict": result.verdict.word,
        "reason": result.verdict.reason,
        "events": [vars(event) for event in history.events],
        "scores": [_score(epoch.after_epoch) for epoch in history.epochs],
        "label_free": {
            "source": _label_free(history.source),
            "start": _label_free(history.start),
            "after_epoch": [_label_free(epoch.after_epoch) for epoch in history.epochs],
            "final": _label_free(final),
        },
        "drift": [epoch.drift for epoch in history.epochs],
        "start_balance": _balance(history.start),
        "balance": [_balance(epoch.after_epoch) for epoch in history.epochs],
        "statistics_gap": history.statistics_gap,
        "batch_norm_layers": len(batch_norm_layers(result.model)),
        "recipe": result.recipe.to_dict(),
        "weights": result.record["weights"],
        "batch_size": result.record["batch_size"],
        "speed": result.record["acceleration"],
        "notes": list(result.notes),
    }
    return record | _calibrated(result, images, again)


def _errors(history: History) -> dict[str, Any]:
    epochs = history.epochs
    start = _error(history.start)
    return {
        "unadapted": _error(history.source),
        "start": start,
        # Where nothing is learnt, each answer with its batch's statistics is the online one.
        "online": _error(epochs[0].before_update) if epochs else start,
        "before_update": [_error(epoch.before_update) for epoch in epochs],
        "after_epoch": [_error(epoch.after_epoch) for epoch in epochs],
        "final": _error(history.final),
    }


def _error(scores: Scores | None) -> float | None:
    return None if scores is None else scores.error


def _score(scores: Scores | None) -> float | None:
    return None if scores is None or scores.agreement is None else label_free_score(scores)


def _label_free(scores: Scores | None) -> dict[str, float | None] | None:
    return None if scores is None else {name: getattr(scores, name) for name in _LABEL_FREE}


def _balance(scores: Scores | None) -> dict[str, Any] | None:
    """How evenly the classes are answered: a collapse shows here."""
    if scores is None or not scores.class_counts:
        return None
    counts = scores.class_counts
    plain: dict[str, Any] = {
        "classes": scores.diversity,
        "largest": max(counts) / max(sum(counts), 1),
        "unused": sum(count == 0 for count in counts),
    }
    return {**plain, "counts": list(counts)} if len(counts) <= _COUNTED else plain


def _calibrated(
    result: AdaptationResult, images: ImageSource, again: Evaluation | None
) -> dict[str, Any]:
    calibration: Calibration | None
    if again is not None:
        calibration = again.calibration
    elif images.labels is None or images.scoring is not None:
        calibration = None
    else:
        calibration = calibration_of(result.confidence, result.predictions, images.labels)
    # A model whose answers are no numbers has no confidence to judge.
    if calibration is None or int(calibration.nan) or not int(calibration.count.sum()):
        return {"ece": None}
    curve = [vars(point) for point in calibration.reliability()]
    return {"ece": calibration.ece().value, "reliability": curve}
