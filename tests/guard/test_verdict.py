"""The one line at the end: what it says of real shifts, and why."""

from __future__ import annotations

import pytest

import acclimate
from acclimate.data.corruptions import corrupt
from acclimate.data.digits import digits
from acclimate.guard.estimate import ErrorEstimate, Interval
from acclimate.guard.history import History
from acclimate.guard.verdict import Verdict, judge, label_free_score
from acclimate.metrics import Scores
from acclimate.models.networks.digits import load_digits_model

IMAGES, LABELS = (part[:500] for part in digits("held-out"))
BLURRED = corrupt(IMAGES, "gaussian_blur", 4, preset="cifar", seed=0)


def scores(**values) -> Scores:
    plain = {
        "images": 100, "labelled": 0, "error": None, "agreement": 0.7, "confidence": 0.8,
        "entropy": 0.5, "diversity": 5.0, "nuclear_norm": None, "loss": None, "class_counts": (),
    }  # fmt: skip
    return Scores(**{**plain, **values})


def history(final: dict, **more) -> History:
    more = {"statistics_shift": [0.3, 0.2, 0.1], **more}
    return History(source=scores(agreement=None), final=scores(**final), **more)


def estimated(value: float, half: float) -> ErrorEstimate:
    level = Interval(value=40, low=30, high=50)
    change = Interval(value=value, low=value - half, high=value + half)
    return ErrorEstimate(before=level, after=level, change=change, images=500)


@pytest.mark.parametrize(
    ("value", "half", "word", "returned"),
    [
        (-20, 5, "helpful", True),
        (-4, 5, "unclear", True),
        (4, 5, "unclear", False),
        (20, 5, "harmful", False),
    ],
)
def test_the_interval_of_the_change_decides(value, half, word, returned):
    verdict = judge(history({}, estimate=estimated(value, half)))
    assert (verdict.word, verdict.returns_adapted) == (word, returned)
    assert str(verdict).startswith(f"{word}: estimated error 40 % -> 40 % (± 5); 30% of")


def test_without_an_estimate_it_is_unclear():
    verdict = judge(history({"confidence": 0.95}))
    assert str(verdict) == "unclear: 30% of the predictions changed; the error cannot be estimated"


def test_classes_that_come_back_with_less_confidence_are_no_proof():
    inverted = 255 - IMAGES
    result = acclimate.adapt(
        load_digits_model(), inverted, "rpl", options={"epochs": 3}, progress=False
    )
    assert result.verdict.word != "helpful"


@pytest.mark.parametrize("recipe", ["bn", "ent", "rpl"])
def test_a_real_shift_is_helped_and_errors_agree(recipe):
    result = acclimate.adapt(
        load_digits_model(), BLURRED, recipe, options={"epochs": 3}, labels=LABELS, progress=False
    )
    assert result.verdict.word == "helpful"
    assert "of the predictions changed" in result.verdict.reason
    assert result.error_after < result.error_before - 20


@pytest.mark.parametrize("recipe", ["none", "bn", "ent", "rpl"])
def test_no_shift_leaves_all_unchanged(recipe):
    result = acclimate.adapt(
        load_digits_model(), IMAGES, recipe, options={"epochs": 3}, labels=LABELS, progress=False
    )
    assert result.verdict.word == "unchanged"
    assert "% of the predictions changed" in result.verdict.reason
    assert abs(result.error_after - result.error_before) < 1


def test_words_and_reasons():
    assert str(Verdict("unclear", "why")) == "unclear: why"
    assert judge(History()).word == "unclear"
    assert judge(history({"agreement": 1.0})).word == "unchanged"
    assert judge(history({}), went_wrong="step 3: why") == Verdict(
        "harmful", "step 3: why", returns_adapted=False
    )


def test_predictions_that_are_not_finite_are_harmful_however_many_changed():
    for agreement in (0.1, 1.0):
        broken = history({"confidence": float("nan"), "agreement": agreement})
        verdict = judge(broken)
        assert (verdict.word, verdict.returns_adapted) == ("harmful", False)
        assert verdict.reason == "the predictions are not finite"


def test_a_late_shift_with_more_classes_in_use_is_a_few_classes_and_no_appearance_shift():
    spread = scores(diversity=9.0)
    late, early = [0.1, 0.1, 1.0], [1.0, 0.1, 0.1]
    assert judge(history({}, start=spread, statistics_shift=late)).word == "harmful"
    assert judge(history({}, start=spread, statistics_shift=early)).word != "harmful"
    assert judge(history({}, start=scores(), statistics_shift=late)).word != "harmful"


def test_halved_confidence_while_classes_come_back_is_harmful():
    start = scores(diversity=9.0, confidence=0.3)
    early = [1.0, 0.1, 0.1]
    assert judge(history({}, start=start, statistics_shift=early)).word == "harmful"


@pytest.mark.parametrize("agreement", [0.4, 0.02])
def test_halved_confidence_is_plain_from_few_images_and_where_nearly_all_changed(agreement):
    start = scores(diversity=9.0, confidence=0.3, agreement=agreement)
    few = {"images": 20, "agreement": agreement}
    assert judge(history(few, start=start)).word == "harmful"


def test_scores_that_need_no_labels():
    assert label_free_score(scores(agreement=0.8)) > label_free_score(scores(agreement=0.7))
