"""What a forward pass gives."""

from __future__ import annotations

from torch import nn

from acclimate.models.outputs import find_classifier


def test_a_linear_layer_goes_before_a_pointwise_convolution() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Conv2d(3, 4, 1))
    assert find_classifier(net)[0] == "0"


def test_the_last_pointwise_convolution_is_a_classifier_where_nothing_is_linear() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 5, 1))
    assert find_classifier(net)[0] == "2"
