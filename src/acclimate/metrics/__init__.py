"""Scores of predictions: with labels and without."""

from acclimate.data.scoring import Scoring
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
