"""Which model predicts for a stream: decided by what both predict for a few of the batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acclimate.guard.containment import ENOUGH_SEEN, FIRST, MOST_SEEN, Comparison
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
LATE = (*[0.1] * 12, *[1.0] * 4)  # the last layers see other classes, not other images


def compared(
    before: Evidence, after: Evidence, times: int = 1, shift: Sequence[float] = LATE
) -> Comparison:
    comparison = Comparison()
    for _ in range(times):
        comparison.add(before, after, shift)
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
        comparison.count()
        due.append(comparison.is_due(3))
        if due[-1]:
            comparison.add(small, small, [])
    assert due == [True] * (ENOUGH_SEEN // 16) + [False, False, True] * 2


def test_the_first_batches_are_compared_however_large_they_are():
    comparison, large = Comparison(), evidence(100, stays=0.9, confidence=0.9)
    due = []
    for _ in range(8):
        comparison.count()
        due.append(comparison.is_due(4))
        if due[-1]:
            comparison.add(large, large, [])
    assert due == [True] * FIRST + [False, False, False, True]


def halves_of(mean: float) -> list[dict[str, Tensor]]:
    """Two halves of a batch, in three layers, that differ by one."""
    names = ("first", "middle", "last")
    return [{name: torch.full((2, 4), mean + half) for name in names} for half in (0, 1)]


def test_where_the_mix_of_classes_varies_the_gain_has_to_be_likely():
    before = evidence(100, stays=0.8, confidence=0.9)
    after = evidence(100, stays=0.85, confidence=0.9, classes=2)
    for varies in (False, True):
        comparison = Comparison()
        for number in range(2):
            comparison.sample(halves_of(5.0 * number * varies))
        assert comparison.mix_varies is varies
        comparison.add(before, after, [0.5] * 16)
        assert comparison.estimate is not None
        change = comparison.estimate.change
        assert change.low < change.value < 0 < change.high
        assert comparison.contained is varies


def test_where_the_mix_of_classes_varies_batches_are_estimated_one_by_one():
    one, two = (evidence(100, stays=stays, confidence=0.9) for stays in (0.9, 0.5))
    comparison = Comparison()
    for number, after in enumerate((one, two)):
        comparison.sample(halves_of(5.0 * number))
        comparison.add(one, after, [])
    together = comparison.estimate
    alone = [compared(one, after, shift=[]).estimate for after in (one, two)]
    assert together is not None
    mean = sum(each.change.value for each in alone if each is not None) / 2
    assert together.images == MOST_SEEN
    assert abs(together.change.value - mean) < 1  # the first image of the first batches is gone


def test_when_the_mix_begins_to_vary_it_is_looked_into_at_once():
    comparison, large = Comparison(), evidence(100, stays=0.9, confidence=0.9)
    for _ in range(FIRST):
        comparison.sample(halves_of(0.0))
        comparison.add(large, large, [])
    assert not comparison.is_due(10)
    comparison.sample(halves_of(9.0))
    assert comparison.is_due(10)


def test_statistics_are_kept_of_the_first_batches_and_of_every_third():
    comparison = Comparison()
    due = []
    for _ in range(9):
        comparison.count()
        due.append(comparison.sample_is_due)
    assert due == [True] * 4 + [False, True, False, False, True]


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


def test_statistics_that_are_not_finite_are_left_out():
    comparison = Comparison()
    for mean in (0.0, 5.0, float("nan")):
        comparison.sample(halves_of(mean))
    assert comparison.mix_varies
    assert len(comparison.samples["last"]) == 2


def test_batches_too_small_to_estimate_one_by_one_are_estimated_together():
    comparison, small = Comparison(), evidence(20, stays=0.9, confidence=0.9)
    for mean in (0.0, 5.0):
        comparison.sample(halves_of(mean))
    for _ in range(5):
        comparison.add(small, small, [])
    assert comparison.mix_varies
    assert comparison.estimate is not None
    assert comparison.estimate.images == 100


def test_the_order_of_the_layers_is_that_of_the_model_whatever_a_checkpoint_made_of_it():
    comparison = Comparison()
    comparison.sample(halves_of(0.0))
    comparison.samples = dict(sorted(comparison.samples.items(), reverse=True))
    comparison.sample(halves_of(0.0))
    assert list(comparison.samples) == ["first", "middle", "last"]


def test_a_comparison_can_be_stored():
    comparison, other = compared(SURE, GUESSING), Comparison()
    for mean in (0.0, 3.0):
        comparison.sample(halves_of(mean))
    unpack(other, pack(comparison))
    assert other.contained
    assert other.mix_varies
    assert other.samples.keys() == comparison.samples.keys()
    assert other.estimate == comparison.estimate
    assert other.temperature == comparison.temperature
