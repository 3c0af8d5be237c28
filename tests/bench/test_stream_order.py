"""The order in which a stream meets images."""

from __future__ import annotations

import pytest
import torch

from acclimate.bench.job import ImageOrder
from acclimate.bench.streaming import correlated_order, stream_order
from acclimate.errors import AcclimateError


def test_images_come_shift_by_shift_or_mixed_and_each_once() -> None:
    sizes = [30, 20, 50]
    in_turn = stream_order(ImageOrder("continual"), sizes, None, seed=1)
    assert [set(part.tolist()) for part in in_turn.split(sizes)] == [
        set(range(30)),
        set(range(30, 50)),
        set(range(50, 100)),
    ]
    mixed = stream_order(ImageOrder("mixed"), sizes, None, seed=1)
    assert sorted(mixed.tolist()) == list(range(100))
    assert len(set((mixed[:30] // 30).tolist())) > 1
    assert torch.equal(mixed, stream_order(ImageOrder("mixed"), sizes, None, seed=1))
    assert not torch.equal(mixed, stream_order(ImageOrder("mixed"), sizes, None, seed=2))


@pytest.mark.parametrize("concentration", [1e-4, 0.1, 10.0])
def test_the_lower_the_concentration_the_longer_a_class_stays(concentration: float) -> None:
    labels = torch.arange(10).repeat(100)
    draw = torch.Generator().manual_seed(0)
    order = correlated_order(labels, concentration=concentration, generator=draw)
    assert sorted(order.tolist()) == list(range(1000))
    runs = int((labels[order].diff() != 0).sum()) + 1
    shuffled = int((labels[torch.randperm(1000, generator=draw)].diff() != 0).sum()) + 1
    assert runs < shuffled / 5  # classes come in blocks within a span
    classes_in_a_batch = [len(part.unique()) for part in labels[order].split(50)]
    mean = sum(classes_in_a_batch) / len(classes_in_a_batch)
    assert mean < {1e-4: 2.1, 0.1: 4, 10.0: 9}[concentration]


def test_within_a_span_the_classes_come_in_any_order() -> None:
    labels = torch.arange(3).repeat(60)
    draw = torch.Generator().manual_seed(0)
    order = labels[correlated_order(labels, concentration=1e6, generator=draw)]
    assert len({tuple(span.unique_consecutive().tolist()) for span in order.split(60)}) > 1


def test_correlated_labels_need_labels() -> None:
    with pytest.raises(AcclimateError, match="need labels"):
        stream_order(ImageOrder.parse("correlated"), [4], None, seed=0)
