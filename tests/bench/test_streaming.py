"""The predictions of a stream, counted for each shift."""

from __future__ import annotations

import pytest
import torch

from acclimate.bench.streaming import Met, _Counts
from acclimate.data import Batch, open_images
from acclimate.data.base import JoinedSource
from acclimate.metrics import Scoring

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


def counted(met: Met, order: torch.Tensor, *, batch_size: int) -> _Counts:
    counts = _Counts(met, device=CPU)
    for chosen in order.split(batch_size):
        counts.add(LOGITS[chosen], Batch(torch.zeros(0), chosen, chosen))
    return counts


def percent(wrong: torch.Tensor, known: torch.Tensor) -> float | None:
    return 100 * float((wrong & known).sum()) / int(known.sum()) if known.any() else None


@pytest.mark.parametrize("order", [torch.arange(TOTAL), MIXED], ids=["one by one", "mixed"])
@pytest.mark.parametrize("batch_size", [1, 100, TOTAL])
def test_each_shift_has_its_own_error_however_images_come(order, batch_size):
    scoring = Scoring(keep=torch.tensor([0, 1, 2, 4]))
    counts = counted(met_shifts(scoring=scoring), order, batch_size=batch_size)
    wrong, known = scoring.predict(LOGITS) != LABELS, LABELS >= 0
    expected = map(percent, wrong.split(SIZES), known.split(SIZES))
    assert counts.by_shift() == {
        name: [pytest.approx(error)]
        for name, error in zip(("fog", "snow", "frost"), expected, strict=True)
    }
    scores = counts.scores()
    assert (scores.images, scores.labelled) == (TOTAL, int(known.sum()))
    assert scores.error == pytest.approx(percent(wrong, known))


@pytest.mark.parametrize("batch_size", [1, 100, TOTAL])
def test_spans_follow_one_another_as_the_images_came(batch_size):
    spans = counted(met_shifts(), MIXED, batch_size=batch_size).spans()
    wrong, known = LOGITS.argmax(dim=1) != LABELS, LABELS >= 0
    assert len(spans) == 20
    assert sum(span.images for span in spans) == TOTAL
    start = 0
    for span in spans:
        came = MIXED[start : start + span.images]
        start += span.images
        assert span.error == pytest.approx(percent(wrong[came], known[came]))
        assert span.largest == LOGITS[came].argmax(dim=1).bincount().max() / len(came)


def test_a_shift_that_was_not_met_has_no_error():
    counts = counted(met_shifts(), torch.arange(1000), batch_size=128)
    fog, snow, frost = counts.by_shift().values()
    assert fog[0] is not None
    assert (snow, frost) == ([None], [None])
    assert counts.scores().images == 1000


def test_without_labels_images_are_counted_and_errors_are_not():
    counts = counted(met_shifts(labels=False), MIXED, batch_size=128)
    assert counts.scores().images == TOTAL
    assert counts.scores().error is None
    assert set(map(tuple, counts.by_shift().values())) == {(None,)}
