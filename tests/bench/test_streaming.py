"""The answers of a stream, counted for each shift."""

from __future__ import annotations

import pytest
import torch

from acclimate.bench.streaming import Met, _Counts
from acclimate.data import Batch, open_images
from acclimate.data.base import JoinedSource
from acclimate.metrics import Scoring, Tally

SIZES = (1000, 1, 1700)
TOTAL = sum(SIZES)
DRAWN = torch.Generator().manual_seed(0)
LOGITS = torch.randn(TOTAL, 5, generator=DRAWN)
LABELS = torch.randint(-1, 5, (TOTAL,), generator=DRAWN)
MIXED = torch.randperm(TOTAL, generator=DRAWN)
CPU = torch.device("cpu")


def met_shifts(*, labels: bool = True, scoring: Scoring | None = None) -> Met:
    parts = [
        open_images(torch.zeros(len(part), 1, 1, 1), labels=part if labels else None)
        for part in LABELS.split(SIZES)
    ]
    for each in parts:
        each.scoring = scoring
    return Met(images=JoinedSource(parts), shifts=["fog", "snow", "frost"])


def counted(met: Met, order: torch.Tensor, *, batch_size: int) -> list[Tally]:
    counts = _Counts(met, device=CPU)
    for chosen in order.split(batch_size):
        counts.add(LOGITS[chosen], Batch(torch.zeros(0), chosen, chosen))
    return counts.tallies()


@pytest.mark.parametrize("order", [torch.arange(TOTAL), MIXED], ids=["one by one", "mixed"])
@pytest.mark.parametrize("batch_size", [1, 100, TOTAL])
def test_each_shift_has_its_own_answers_however_they_come(order, batch_size):
    scoring = Scoring(keep=torch.tensor([0, 1, 2, 4]))
    tallies = counted(met_shifts(scoring=scoring), order, batch_size=batch_size)
    right = scoring.predict(LOGITS) == LABELS
    for tally, labels, correct, size in zip(
        tallies, LABELS.split(SIZES), right.split(SIZES), SIZES, strict=True
    ):
        assert tally.images == size
        assert int(tally.labelled) == int((labels >= 0).sum())
        assert int(tally.wrong) == int((~correct & (labels >= 0)).sum())


@pytest.mark.parametrize("batch_size", [1, 100, TOTAL])
def test_spans_follow_one_another_as_the_images_came(batch_size):
    counts = _Counts(met_shifts(), device=CPU)
    for chosen in MIXED.split(batch_size):
        counts.add(LOGITS[chosen], Batch(torch.zeros(0), chosen, chosen))
    spans = counts.spans()
    wrong, known = LOGITS.argmax(dim=1) != LABELS, LABELS >= 0
    assert len(spans) == 20
    assert sum(span["images"] for span in spans) == TOTAL
    start = 0
    for span in spans:
        came = MIXED[start : start + span["images"]]
        start += span["images"]
        share = (wrong & known)[came].sum() / known[came].sum()
        assert span["error"] == pytest.approx(100 * float(share))
        assert span["largest"] == LOGITS[came].argmax(dim=1).bincount().max() / len(came)


def test_a_shift_that_was_not_met_has_no_answers():
    tallies = counted(met_shifts(), torch.arange(1000), batch_size=128)
    assert [tally.images for tally in tallies] == [1000, 0, 0]


def test_without_labels_images_are_counted_and_errors_are_not():
    tallies = counted(met_shifts(labels=False), MIXED, batch_size=128)
    assert [tally.images for tally in tallies] == list(SIZES)
    assert all(tally.scores().error is None for tally in tallies)
