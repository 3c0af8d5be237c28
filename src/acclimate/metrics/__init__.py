"""Scores of predictions: with labels and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acclimate._lazy import imported_when_used

if TYPE_CHECKING:
    from acclimate.data.labels import Scoring
    from acclimate.metrics.bootstrap import bootstrap_interval
    from acclimate.metrics.calibration import Calibration, ReliabilityBin, ece
    from acclimate.metrics.error import ErrorCounts, top_k_error
    from acclimate.metrics.figure import Figure
    from acclimate.metrics.predictions import (
        Confusions,
        Control,
        FilteredError,
        MostPredicted,
        UnmappableShare,
        confusion_matrix,
        confusions,
        filtered_error,
        imagenet_control,
        most_predicted,
        unmappable_share,
    )
    from acclimate.metrics.published import (
        ALEXNET_CORRUPTIONS,
        ALEXNET_DOMAINS,
        CORRUPTIONS,
        DEV_CORRUPTIONS,
        DOMAINS,
        PublishedRow,
        published_corruptions,
        published_domains,
    )
    from acclimate.metrics.rank import RankCorrelations, rank_correlations, spearman
    from acclimate.metrics.relative_error import (
        MeanCorruptionError,
        MeanDomainError,
        RelativeError,
        mce,
        mde,
        mean_error,
    )
    from acclimate.metrics.scores import Scores, Tally
    from acclimate.metrics.table import ErrorTable

# The mean over shifts is taken by tables of results, which wait for no torch.
_HOME = {
    "ALEXNET_CORRUPTIONS": "published",
    "ALEXNET_DOMAINS": "published",
    "CORRUPTIONS": "published",
    "Calibration": "calibration",
    "Confusions": "predictions",
    "Control": "predictions",
    "DEV_CORRUPTIONS": "published",
    "DOMAINS": "published",
    "ErrorCounts": "error",
    "ErrorTable": "table",
    "Figure": "figure",
    "FilteredError": "predictions",
    "MeanCorruptionError": "relative_error",
    "MeanDomainError": "relative_error",
    "MostPredicted": "predictions",
    "PublishedRow": "published",
    "RankCorrelations": "rank",
    "RelativeError": "relative_error",
    "ReliabilityBin": "calibration",
    "Scores": "scores",
    "Scoring": "error",
    "Tally": "scores",
    "UnmappableShare": "predictions",
    "bootstrap_interval": "bootstrap",
    "confusion_matrix": "predictions",
    "confusions": "predictions",
    "ece": "calibration",
    "filtered_error": "predictions",
    "imagenet_control": "predictions",
    "mce": "relative_error",
    "mde": "relative_error",
    "mean_error": "relative_error",
    "most_predicted": "predictions",
    "published_corruptions": "published",
    "published_domains": "published",
    "rank_correlations": "rank",
    "spearman": "rank",
    "top_k_error": "error",
    "unmappable_share": "predictions",
}

__all__ = [
    "ALEXNET_CORRUPTIONS",
    "ALEXNET_DOMAINS",
    "CORRUPTIONS",
    "DEV_CORRUPTIONS",
    "DOMAINS",
    "Calibration",
    "Confusions",
    "Control",
    "ErrorCounts",
    "ErrorTable",
    "Figure",
    "FilteredError",
    "MeanCorruptionError",
    "MeanDomainError",
    "MostPredicted",
    "PublishedRow",
    "RankCorrelations",
    "RelativeError",
    "ReliabilityBin",
    "Scores",
    "Scoring",
    "Tally",
    "UnmappableShare",
    "bootstrap_interval",
    "confusion_matrix",
    "confusions",
    "ece",
    "filtered_error",
    "imagenet_control",
    "mce",
    "mde",
    "mean_error",
    "most_predicted",
    "published_corruptions",
    "published_domains",
    "rank_correlations",
    "spearman",
    "top_k_error",
    "unmappable_share",
]

__getattr__, __dir__ = imported_when_used(__name__, _HOME)
