"""The one line at the end: what it says of real shifts, and why."""

from __future__ import annotations

import pytest

import acclimate
from acclimate.data.corruptions import corrupt
from acclimate.data.digits import digits
from acclimate.guard.history import History
from acclimate.guard.verdict import Verdict, earned_confidence, judge, label_free_score, late_shift
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


def test_few_images_or_no_statistics_show_nothing():
    assert "too few" in judge(history({"confidence": 0.95, "images": 20})).reason
    assert "nothing shows" in judge(history({"confidence": 0.95}, statistics_shift=[])).reason


def test_classes_that_come_back_with_less_confidence_are_no_proof():
    inverted = 255 - IMAGES
    result = acclimate.adapt(
        load_digits_model(), inverted, "rpl", options={"epochs": 3}, progress=False
    )
    assert result.verdict.word != "helpful"


def test_nearly_all_means_what_chance_would_change():
    two = scores(agreement=0.5, class_counts=(50, 50))
    source = scores(agreement=None, class_counts=(50, 50))
    record = History(
        source=source, start=two, final=scores(confidence=0.95), statistics_shift=[0.1, 0.1]
    )
    assert "near chance" in judge(record).reason


@pytest.mark.parametrize("recipe", ["bn", "ent", "rpl"])
def test_a_real_shift_is_helped_and_errors_agree(recipe):
    result = acclimate.adapt(
        load_digits_model(), BLURRED, recipe, options={"epochs": 3}, labels=LABELS, progress=False
    )
    assert result.verdict.word == "helpful"
    assert "of the predictions changed" in result.verdict.reason
    assert result.error_after < result.error_before - 20


@pytest.mark.parametrize("recipe", ["none", "bn", "ent", "rpl"])
def test_no_shift_is_neutral(recipe):
    result = acclimate.adapt(
        load_digits_model(), IMAGES, recipe, options={"epochs": 3}, labels=LABELS, progress=False
    )
    assert result.verdict.word == "neutral"
    assert "% of the predictions changed" in result.verdict.reason
    assert abs(result.error_after - result.error_before) < 1


def test_words_and_reasons():
    assert str(Verdict("neutral", "why")) == "neutral: why"
    assert judge(History()).word == "neutral"
    assert judge(history({"agreement": 1.0})).word == "neutral"
    assert judge(history({"confidence": 0.95})).word == "helpful"
    assert "no more confident" in judge(history({"confidence": 0.8})).reason
    assert judge(history({"confidence": 0.95}), went_wrong="step 3: why") == Verdict(
        "harmful", "step 3: why"
    )


def test_predictions_that_are_not_finite_are_harmful_however_many_changed():
    for agreement in (0.1, 1.0):
        broken = history({"confidence": float("nan"), "agreement": agreement})
        assert judge(broken) == Verdict("harmful", "the predictions are not finite")


def test_a_source_near_chance_is_not_called_helped():
    near_chance = history({"confidence": 0.95}, start=scores(agreement=0.05))
    assert judge(near_chance).word == "neutral"
    assert "near chance" in judge(near_chance).reason


def test_a_model_that_knows_nothing_is_not_called_helped():
    record = History(
        source=scores(agreement=None, confidence=0.12, class_counts=(10,) * 10),
        final=scores(confidence=0.4),
        statistics_shift=[0.3, 0.1],
    )
    assert judge(record).word == "neutral"
    assert "hardly more confident than chance" in judge(record).reason


def test_a_late_shift_with_more_classes_in_use_is_a_few_classes_and_no_appearance_shift():
    spread = scores(diversity=9.0)
    late, early = [0.1, 0.1, 1.0], [1.0, 0.1, 0.1]
    assert judge(history({}, start=spread, statistics_shift=late)).word == "harmful"
    assert judge(history({}, start=spread, statistics_shift=early)).word != "harmful"
    assert judge(history({}, start=scores(), statistics_shift=late)).word != "harmful"
    assert late_shift([]) == 0
    assert late_shift([0.0, 0.0]) == 0


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
    assert earned_confidence(scores(), scores(agreement=0.5, confidence=0.9)) == pytest.approx(0.2)
    assert earned_confidence(scores(), scores(agreement=1.0, confidence=0.9)) == 0
