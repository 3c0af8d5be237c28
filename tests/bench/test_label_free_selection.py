"""Choosing by the guard's score, and what it costs."""

from __future__ import annotations

import pytest

from acclimate.bench.selection import choose_label_free
from searches import searched_settings

SPATTER, BLUR = "cifar/spatter:1", "cifar/gaussian_blur:1"
# The score and the labels disagree on the blur.
ERRORS = {
    (1e-3, SPATTER): [20.0, 15.0], (1e-3, BLUR): [30.0, 30.0],
    (1e-2, SPATTER): [40.0, 60.0], (1e-2, BLUR): [20.0, 22.0],
}  # fmt: skip
RECORDS = {
    (1e-3, SPATTER): {"scores": [0.8, 0.9], "drift": [0.01, 0.02]},
    (1e-3, BLUR): {"scores": [0.8, 0.7], "drift": [0.01, 0.02]},
    (1e-2, SPATTER): {"scores": [0.95, 0.99], "drift": [0.2, 0.3]},
    (1e-2, BLUR): {"scores": [0.7, 0.6], "drift": [0.1, 0.2]},
}


def test_the_highest_score_of_each_shift_among_states_that_did_not_drift_far():
    found = choose_label_free(searched_settings(ERRORS, records=RECORDS))
    spatter, blur = found.by_shift[f"cifar10 {SPATTER}"], found.by_shift[f"cifar10 {BLUR}"]
    assert spatter.options == {"optimizer.lr": 1e-3, "epochs": 2}  # 1e-2 agrees more, but drifted
    assert (spatter.error, spatter.measured, spatter.candidates) == (15.0, {"score": 0.9}, 2)
    assert blur.options == {"optimizer.lr": 1e-3, "epochs": 1}
    assert found.error == (15.0 + 30.0) / 2


def test_the_regret_is_against_the_one_choice_that_labels_make():
    records = {**RECORDS, (1e-3, SPATTER): {"scores": [0.9, 0.8], "drift": [0.01, 0.02]}}
    found = choose_label_free(searched_settings(ERRORS, records=records))
    assert found.labelled.options == {"optimizer.lr": 1e-3, "epochs": 2}
    assert found.regret == pytest.approx((20.0 + 30.0) / 2 - (15.0 + 30.0) / 2)


def test_where_all_drifted_too_far_nothing_is_chosen():
    far = {key: {**record, "drift": [0.5, 0.6]} for key, record in RECORDS.items()}
    some = {**far, (1e-3, BLUR): RECORDS[1e-3, BLUR]}
    found = choose_label_free(searched_settings(ERRORS, records=some))
    assert list(found.by_shift) == [f"cifar10 {BLUR}"]
    assert found.error is found.regret is None
