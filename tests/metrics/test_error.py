"""Top-k errors against counting by hand, whole and in parts."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acclimate.errors import AcclimateError
from acclimate.metrics import ErrorCounts, Figure, Scoring, top_k_error

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(101, 7, generator=GENERATOR)
LABELS = torch.randint(-1, 7, (101,), generator=GENERATOR)


def by_hand(logits, labels, k):
    right = total = 0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        if label >= 0:
            total += 1
            right += label in sorted(range(len(row)), key=lambda c: -row[c])[:k]
    return 100 * (total - right) / total


def counts_of(rows=slice(None)):
    counts = ErrorCounts()
    counts.update(LOGITS[rows], LABELS[rows])
    return counts


@pytest.mark.parametrize("k", [1, 2, 5, 7])
def test_top_k_error(k):
    assert top_k_error(LOGITS, LABELS, k=k) == pytest.approx(by_hand(LOGITS, LABELS, k))


@pytest.mark.parametrize("k", [1, 5])
def test_counts_give_the_same_error_and_know_how_many_were_labelled(k):
    figure = counts_of().error(k)
    assert figure.value == pytest.approx(top_k_error(LOGITS, LABELS, k=k))
    assert figure.images == int((LABELS >= 0).sum()) < len(LABELS)


@given(st.lists(st.integers(0, 101), max_size=4))
def test_counts_of_parts_add_up(cuts):
    edges = [0, *sorted(cuts), 101]
    parts = [counts_of(slice(a, b)) for a, b in pairwise(edges)]
    assert sum(parts, ErrorCounts()) == counts_of()
    merged = ErrorCounts()
    for part in reversed(parts):
        merged.merge(pickle.loads(pickle.dumps(part)))
    assert merged == counts_of()


def test_adding_leaves_the_parts_alone():
    one, other = counts_of(slice(0, 50)), counts_of(slice(50, 101))
    total = one + other
    total.update(LOGITS, LABELS)
    assert (one, other) == (counts_of(slice(0, 50)), counts_of(slice(50, 101)))


def test_update_asks_nothing_of_the_host():
    """A meta tensor has no values, so whatever waits for one fails."""
    scoring = Scoring(keep=torch.tensor([1, 2, 3, 4, 5]), label_of=torch.arange(7))
    counts = ErrorCounts()
    for chosen in (None, scoring):
        counts.update(LOGITS.to("meta"), LABELS.to("meta"), scoring=chosen)
    assert counts.wrong_top5.device.type == "meta"
    assert counts.images == 202


def test_scoring_says_what_counts_as_an_answer():
    logits = torch.tensor([[9.0, 1.0, 0.0], [9.0, 0.0, 1.0]])
    labels = torch.tensor([1, 1])
    scoring = Scoring(keep=torch.tensor([1, 2]))
    assert top_k_error(logits, labels) == 100
    assert top_k_error(logits, labels, scoring=scoring) == 50
    groups = Scoring(label_of=torch.tensor([0, 0, 1]))
    counts = ErrorCounts()
    counts.update(logits[:, [2, 0, 1]], torch.tensor([0, 0]), scoring=groups)
    counts.update(logits[:, [2, 1, 0]], torch.tensor([0, 0]), scoring=groups)
    assert counts.error().value == 50
    with pytest.raises(AcclimateError, match="got 1 others"):
        top_k_error(logits, torch.tensor([0, 2]), scoring=groups)


def test_the_interval_is_that_of_a_bootstrap_over_images():
    wrong, images = 300, 2000
    figure = ErrorCounts.of(wrong=wrong, images=images).error(interval=0.9, draws=20_000)
    drawn = np.random.default_rng(7)
    answers = np.arange(images) < wrong
    means = [100 * answers[drawn.integers(images, size=images)].mean() for _ in range(4000)]
    # The ends move by about 0.03 from one set of draws to the next.
    expected = np.percentile(means, [5, 95])
    assert [figure.low, figure.high] == pytest.approx(expected, abs=0.1)
    assert figure.low < figure.value < figure.high
    again = ErrorCounts.of(wrong=wrong, images=images).error(interval=0.9, draws=20_000)
    other = ErrorCounts.of(wrong=wrong, images=images).error(interval=0.9, draws=200, seed=1)
    assert again == figure != other


def test_intervals_hold_the_truth_as_often_as_they_say():
    drawn = np.random.default_rng(3).binomial(500, 0.3, size=400)
    figures = [ErrorCounts.of(wrong=int(w), images=500).error(interval=0.8) for w in drawn]
    held = sum(f.low <= 30 <= f.high for f in figures)
    # 320 of 400 expected; four standard deviations are 32.
    assert 288 <= held <= 352


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (
            Figure(value=12.34, images=10_000, low=11.7, high=12.91),
            "12.3 % (10,000 images, 95 % CI 11.7 to 12.9)",
        ),
        (Figure(value=100.0, images=1), "100.0 % (1 image)"),
        (Figure(value=5.0, images=None), "5.0 % (number of images not stated)"),
        (
            Figure(value=0.0231, images=7, low=0.01, high=0.04, level=0.9, unit=""),
            "0.023 (7 images, 90 % CI 0.010 to 0.040)",
        ),
    ],
)
def test_a_figure_reads(figure, text):
    assert str(figure) == text
    assert float(figure) == figure.value


def updated(counts, logits, labels):
    counts.update(logits, labels)
    return counts


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (LOGITS, LABELS[:5], r"label for each of the 101 images, got labels of shape \(5,\)"),
        (LOGITS[0], LABELS[:1], r"images × classes, got torch.float32 of shape \(7,\)"),
        (LOGITS.long(), LABELS, "got torch.int64"),
        (LOGITS, LABELS.float(), "whole numbers"),
        (LOGITS[:2], torch.tensor([0, 7]), "got 1 others among 2"),
        (LOGITS[:2], torch.tensor([0, -2]), "got 1 others among 2"),
        (LOGITS[:2], torch.tensor([-1, -1]), "at least one known label, got 2 images"),
        (LOGITS[:0], LABELS[:0], "got none; is the data set empty"),
        (torch.full((2, 3), float("nan")), torch.tensor([0, 1]), "NaN for 2 of 2 images"),
    ],
)
def test_what_cannot_be_scored_is_refused(logits, labels, message):
    with pytest.raises(AcclimateError, match=message):
        top_k_error(logits, labels)
    with pytest.raises(AcclimateError, match=message):
        updated(ErrorCounts(), logits, labels).error()


def test_too_few_classes_for_a_top_k_error():
    labels = torch.tensor([0, 1])
    with pytest.raises(AcclimateError, match="at least 5 classes to choose from, got 3"):
        top_k_error(torch.randn(2, 3), labels, k=5)
    counts = ErrorCounts()
    counts.update(torch.randn(2, 3), labels)
    assert counts.error().images == 2
    with pytest.raises(AcclimateError, match="at least 5 classes to choose from, got 3"):
        (counts_of() + counts).error(5)
    with pytest.raises(AcclimateError, match="k >= 1"):
        top_k_error(LOGITS, LABELS, k=0)
    with pytest.raises(AcclimateError, match="k = 1 or 5"):
        counts_of().error(3)
    with pytest.raises(AcclimateError, match="5 of 4"):
        ErrorCounts.of(wrong=5, images=4)
