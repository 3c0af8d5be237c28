"""Scores of predictions: with labels and without."""

from acclimate.metrics.scoring import Scoring
from acclimate.metrics.tally import Scores, Tally

__all__ = ["Scores", "Scoring", "Tally"]
