"""Calibration from answers and their confidence, where the logits are gone."""

from __future__ import annotations

import torch
from torch import Tensor

from acclimate.metrics import Calibration

__all__ = ["calibration_of"]


def calibration_of(
    confidence: Tensor, predictions: Tensor, labels: Tensor, *, bins: int = 15
) -> Calibration:
    """What `Calibration` would have summed up over the logits; images with label -1 are left out.

    >>> sure, answers = torch.tensor([0.5, 0.999]), torch.tensor([0, 0])
    >>> print(calibration_of(sure, answers, torch.tensor([0, 1]), bins=2).ece())
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
