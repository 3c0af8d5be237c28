"""Scores of predictions: with labels and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acclimate._lazy import imported_when_used

if TYPE_CHECKING:
    from acclimate.data.labels import Scoring
    from acclimate.metrics.calibration import Calibration, ReliabilityBin, ece
    from acclimate.metrics.error import ErrorCounts, top_k_error
    from acclimate.metrics.figure import Figure, bootstrap_interval, wilson_interval
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
    from acclimate.metrics.relative_error import RelativeError, mce, mde, mean_error
    from acclimate.metrics.scores import Scores, Tally
    from acclimate.metrics.table import ErrorTable

# The mean over shifts is taken by tables of results, which wait for no torch.
_NAMES = {
    "calibration": "Calibration ReliabilityBin ece",
    "error": "ErrorCounts Scoring top_k_error",
    "figure": "Figure bootstrap_interval wilson_interval",
    "predictions": (
        "Confusions Control FilteredError MostPredicted UnmappableShare confusion_matrix "
        "confusions filtered_error imagenet_control most_predicted unmappable_share"
    ),
    "published": (
        "ALEXNET_CORRUPTIONS ALEXNET_DOMAINS CORRUPTIONS DEV_CORRUPTIONS DOMAINS "
        "PublishedRow published_corruptions published_domains"
    ),
    "rank": "RankCorrelations rank_correlations spearman",
    "relative_error": "RelativeError mce mde mean_error",
    "scores": "Scores Tally",
    "table": "ErrorTable",
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
    "wilson_interval",
]

__getattr__, __dir__ = imported_when_used(
    __name__, {name: module for module, names in _NAMES.items() for name in names.split()}
)
