"""Scores of predictions: with labels and without."""

from acclimate.metrics.tally import Scores, Tally

__all__ = ["Scores", "Tally"]
