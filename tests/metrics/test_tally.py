"""Sums over batches equal direct computations over the whole."""

from __future__ import annotations

import json

import pytest
import torch

from acclimate.metrics import Scores, Tally
from acclimate.metrics import scores as module

torch.manual_seed(0)
LOGITS = 3 * torch.randn(101, 7)
LABELS = torch.randint(0, 7, (101,))
SOURCE = torch.randint(0, 7, (101,))
RAGGED = [40, 1, 60]


def tally_of(sizes: list[int], first: int = 0) -> Tally:
    tally = Tally()
    for size in sizes:
        rows = slice(first, first + size)
        tally.update(LOGITS[rows], labels=LABELS[rows], source=SOURCE[rows])
        tally.add_loss(LOGITS[rows].mean() * size, images=size)
        first += size
    return tally


def close(scores: Scores) -> dict[str, object]:
    return {
        name: pytest.approx(value) if isinstance(value, float) else value
        for name, value in scores.to_dict().items()
    }


def test_scores_are_those_of_all_images_at_once():
    p = LOGITS.double().softmax(dim=1)
    top = p.argmax(dim=1)
    mean = p.mean(dim=0)
    assert tally_of(RAGGED).scores().to_dict() == close(
        Scores(
            images=101,
            labelled=101,
            error=100 * float((top != LABELS).double().mean()),
            agreement=float((top == SOURCE).double().mean()),
            confidence=float(p.amax(dim=1).mean()),
            entropy=float(-(p * p.log()).sum(dim=1).mean()),
            diversity=float((-(mean * mean.log()).sum()).exp()),
            nuclear_norm=float(torch.linalg.matrix_norm(p, "nuc")) / (101 * 7) ** 0.5,
            loss=float(LOGITS.mean()),
            class_counts=tuple(torch.bincount(top, minlength=7).tolist()),
        )
    )


def test_how_the_images_are_cut_into_batches_does_not_matter():
    assert tally_of([101]).scores().to_dict() == close(tally_of(RAGGED).scores())


@pytest.mark.parametrize("cut", [0, 1, 50, 101])
def test_tallies_of_parts_add_up(cut):
    one, other = tally_of([cut] if cut else []), tally_of([101 - cut] if cut < 101 else [], cut)
    one.merge(other)
    assert one.scores().to_dict() == close(tally_of([101]).scores())
    one.update(LOGITS[:3])
    assert one.scores().images == 104


def test_unknown_labels_are_not_scored():
    tally = Tally()
    tally.update(
        torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]]), labels=torch.tensor([-1, 1, 1])
    )
    scores = tally.scores()
    assert (scores.images, scores.labelled, scores.error) == (3, 2, 50.0)
    tally = Tally()
    tally.update(torch.zeros(2, 3), labels=torch.tensor([-1, -1]))
    assert (tally.scores().labelled, tally.scores().error) == (0, None)


def test_nothing_seen_and_nothing_known():
    assert Tally().scores().images == 0
    tally = Tally()
    tally.update(torch.zeros(2, 3))
    scores = tally.scores()
    assert (scores.error, scores.agreement, scores.loss) == (None, None, None)
    assert scores.diversity == pytest.approx(3)


def test_half_precision_logits_are_summed_in_double():
    tally = Tally()
    tally.update(LOGITS.half())
    assert tally.scores().confidence == pytest.approx(tally_of([101]).scores().confidence, abs=1e-3)
    assert tally.confidence.dtype == torch.float64


def test_too_many_classes_leave_out_the_nuclear_norm_only(monkeypatch):
    monkeypatch.setattr(module, "GRAM_CLASSES", 6)
    scores = tally_of(RAGGED).scores()
    assert scores.nuclear_norm is None
    assert scores.diversity > 1


def test_scores_survive_json():
    scores = tally_of(RAGGED).scores()
    assert Scores.from_dict(json.loads(json.dumps(scores.to_dict()))) == scores
