"""Which model predicts for a stream: decided by what both predict for a few of the batches."""

from __future__ import annotations

import torch

from acclimate.guard.containment import ENOUGH_SEEN, MOST_SEEN, Comparison
from acclimate.guard.evidence import Evidence
from acclimate.learner.state import pack, unpack


def evidence(images: int, *, stays: float, confidence: float, classes: int = 10) -> Evidence:
    """Predictions of so many classes in turn, that stay in the views of so many images."""
    kept = torch.arange(images)[:, None].expand(images, 2) < stays * images
    return Evidence(
        classes=10,
        predicted=torch.arange(images) % classes,
        confidence=torch.full((images,), confidence),
        entropy=torch.full((images,), 1 - confidence),
        stays=kept,
        probability=torch.full((images, 2), stays * confidence),
        confidences=torch.linspace(0.99, 0.2, 41).expand(images, 41),
    )


SURE = evidence(100, stays=0.99, confidence=0.98, classes=1)
GUESSING = evidence(100, stays=0.3, confidence=0.4)
LATE = [0.1] * 12 + [1.0] * 4  # the last layers see other classes, not other images


def compared(before: Evidence, after: Evidence, times: int = 1) -> Comparison:
    comparison = Comparison()
    for _ in range(times):
        comparison.add(before, after, LATE)
    return comparison


def test_the_unadapted_model_predicts_where_it_is_estimated_to_do_better():
    assert compared(SURE, GUESSING).contained
    assert not compared(GUESSING, SURE).contained


def test_too_few_images_change_nothing():
    few = [evidence(20, stays=s, confidence=s) for s in (0.99, 0.3)]
    comparison = compared(*few)
    assert comparison.estimate is None
    assert not comparison.contained
    assert comparison.temperature == 1.0


def test_every_batch_is_compared_until_there_are_enough_images_and_then_one_of_some():
    comparison, small = Comparison(), evidence(16, stays=0.9, confidence=0.9)
    due = []
    for _ in range(10):
        due.append(comparison.is_due(3))
        if due[-1]:
            comparison.add(small, small, [])
    assert due == [True] * (ENOUGH_SEEN // 16) + [False, False, True] * 2


def test_only_the_last_images_count():
    comparison = compared(SURE, GUESSING, times=5)
    assert comparison.images == MOST_SEEN
    for _ in range(3):
        comparison.add(GUESSING, SURE, [0.5] * 16)
    assert not comparison.contained


def test_predictions_that_are_not_finite_are_left_out():
    comparison = compared(SURE, evidence(100, stays=0.5, confidence=float("nan")))
    assert comparison.images == 0
    assert not comparison.contained


def test_the_choice_stays_while_there_is_nothing_to_compare():
    comparison = compared(SURE, GUESSING)
    comparison.forget_adapted()
    assert (comparison.contained, comparison.images, comparison.estimate) == (True, 0, None)


def test_a_comparison_can_be_stored():
    comparison, other = compared(SURE, GUESSING), Comparison()
    unpack(other, pack(comparison))
    assert other.contained
    assert other.estimate == comparison.estimate
    assert other.temperature == comparison.temperature
