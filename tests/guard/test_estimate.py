"""The error without labels: what its estimate is made of, and how it does on images with labels."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from acclimate.data.corruptions import corrupt
from acclimate.data.digits import digits
from acclimate.guard.estimate import (
    ENOUGH,
    ErrorEstimate,
    Interval,
    change_signs,
    estimate_change,
    estimate_error,
    estimate_level,
    lateness,
    level_signs,
    telling_views,
)
from acclimate.guard.evidence import Evidence, observe
from acclimate.models.networks.digits import load_digits_model

MODEL = load_digits_model()
IMAGES, LABELS = (part[:500] for part in digits("held-out"))


def seen(*severity: int) -> Evidence:
    """What the digits network predicts for digits in fog."""
    images = corrupt(IMAGES, "fog", severity[0], preset="cifar", seed=0) if severity else IMAGES
    assert MODEL.preprocessing is not None
    ready = MODEL.preprocessing.normalize(torch.as_tensor(images)[:, None])
    return observe(MODEL.model.eval(), ready.split(100))


CLEAN, FOGGY = seen(), seen(5)


def evidence(predicted: list[int], *, confidence: float = 0.8, stays: float = 0.8) -> Evidence:
    n = len(predicted)
    kept = torch.arange(n)[:, None].expand(n, 2) < stays * n
    spread = torch.tensor([confidence, *[(1 - confidence) / 9] * 9])
    return Evidence(
        classes=10,
        predicted=torch.tensor(predicted),
        confidence=torch.full((n,), confidence),
        entropy=torch.full((n,), float(torch.special.entr(spread).sum() / math.log(10))),
        stays=kept,
        probability=torch.full((n, 2), stays * confidence),
        confidences=torch.linspace(0.9, 0.2, 41).expand(n, 41),
    )


def test_a_steadier_and_more_confident_state_is_thought_better():
    classes = [k % 10 for k in range(200)]
    levels = [
        estimate_level(evidence(classes, confidence=level, stays=level)).value
        for level in (0.4, 0.6, 0.8, 0.97)
    ]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] > 40 > 12 > levels[-1]


def test_the_digits_are_known_and_the_fog_is_not():
    clean, foggy = estimate_level(CLEAN), estimate_level(FOGGY)
    assert clean.low < 1.5 < clean.high < 15  # 0.7 % are wrong
    assert foggy.low > clean.high


def test_more_images_narrow_the_interval():
    few, many = ([k % 10 for k in range(count)] for count in (40, 1000))
    widths = [each.high - each.low for each in map(estimate_level, map(evidence, (few, many)))]
    assert widths[0] > 1.1 * widths[1]


def test_nothing_changed_is_known_for_sure():
    change = estimate_change(CLEAN, CLEAN, statistics=False)
    assert change.value == 0
    assert change.high - change.low < 1


def test_a_change_is_no_larger_than_the_share_of_predictions_that_changed():
    other = replace(CLEAN, predicted=CLEAN.predicted.clone())
    other.predicted[:50] = (other.predicted[:50] + 1) % 10
    signs = change_signs(CLEAN, other)
    assert signs["changed"] == 0.1
    assert abs(estimate_change(CLEAN, other, statistics=True).value) <= 10


def test_statistics_that_differ_late_speak_against_new_ones():
    few = evidence([k % 2 for k in range(200)], confidence=0.9, stays=0.9)
    many = evidence([k % 10 for k in range(200)], confidence=0.6, stays=0.6)
    late, early = [0.1] * 14 + [0.3, 0.3], [0.3, 0.3] + [0.1] * 14
    against = estimate_change(few, many, shift=late, statistics=True)
    less = estimate_change(few, many, shift=early, statistics=True)
    assert against.low > 0
    assert against.value > less.value


def test_lateness_compares_the_last_layers_with_the_middle():
    assert lateness([]) == 0
    assert lateness([0.2] * 20) == pytest.approx(0, abs=1e-6)
    assert lateness([0.2] * 20 + [0.4]) > 0.5
    assert lateness([1.0] + [0.2] * 19) == pytest.approx(0, abs=1e-6)
    assert lateness([0.3]) == 0


def test_few_images_random_classes_and_broken_networks_cannot_be_estimated():
    few = evidence([0, 1] * (ENOUGH // 2 - 1))
    assert estimate_level(few) is None
    assert estimate_change(few, few, statistics=False) is None
    assert estimate_error(few, few, learnt=True) is None
    broken = replace(CLEAN, confidence=torch.full_like(CLEAN.confidence, float("nan")))
    assert estimate_level(broken) is None
    assert estimate_error(CLEAN, broken, learnt=True) is None
    assert estimate_level(replace(CLEAN, classes=1)) is None


def test_a_view_that_changes_the_class_itself_is_not_asked():
    assert telling_views(CLEAN) == [1]  # a mirrored 3 is no digit
    assert telling_views(evidence([0, 1] * 50)) == [0, 1]
    assert level_signs(CLEAN)["mirrored"] == level_signs(CLEAN)["stays"]


def test_levels_and_change_are_brought_into_line():
    found = estimate_error(FOGGY, CLEAN, between=CLEAN, learnt=False)
    assert found.after.value - found.before.value == pytest.approx(found.change.value, abs=2)
    assert found.change.value < -20
    assert found.images == len(FOGGY)


def test_learning_and_statistics_are_estimated_apart():
    whole = estimate_error(FOGGY, CLEAN, between=CLEAN, learnt=True)
    assert whole.change.value == pytest.approx(
        estimate_error(FOGGY, CLEAN, between=CLEAN, learnt=False).change.value
    )
    only_learnt = estimate_error(FOGGY, CLEAN, learnt=True)
    assert only_learnt.change.value != whole.change.value


def test_it_goes_through_json():
    found = estimate_error(FOGGY, CLEAN, between=CLEAN, learnt=False)
    assert ErrorEstimate.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_intervals_in_words():
    assert str(Interval(value=20.4, low=16, high=24)) == "20 % (± 4)"
    assert Interval(value=2, low=1, high=3).excludes_zero
    assert not Interval(value=2, low=-1, high=5).excludes_zero
