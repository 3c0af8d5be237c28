"""Label-free scores against their definitions."""

from __future__ import annotations

import pytest
import torch

from acclimate.metrics.scores import effective_classes, information_maximization, nuclear_norm_score


def test_nuclear_norm_is_largest_for_sure_and_diverse_predictions():
    sure = torch.eye(3).repeat(4, 1)
    collapsed = torch.eye(3)[[0] * 12]
    unsure = torch.full((12, 3), 1 / 3)
    scores = [nuclear_norm_score((p.T @ p).double(), 12) for p in (sure, collapsed, unsure)]
    assert scores[0] == pytest.approx(1)
    assert scores[0] > scores[1] > scores[2]


def test_nuclear_norm_of_nothing_or_of_nan_is_zero():
    assert nuclear_norm_score(torch.zeros(3, 3), 0) == 0
    assert nuclear_norm_score(torch.full((3, 3), float("nan")), 4) == 0


def test_information_maximization_is_the_mutual_information():
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    mean = p.mean(dim=0)
    conditional = float(-(p * p.log()).sum(dim=1).mean())
    direct = float((p * (p / mean).log()).sum(dim=1).mean())
    diversity = float(effective_classes(mean))
    assert information_maximization(diversity=diversity, entropy=conditional) == pytest.approx(
        direct
    )
