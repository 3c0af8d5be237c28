"""Percentile bootstraps against what is known of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from acclimate.errors import AcclimateError
from acclimate.metrics import bootstrap_interval


def test_the_interval_of_a_mean_is_about_that_of_the_normal_distribution():
    values = np.random.default_rng(0).normal(size=2000)
    low, high = bootstrap_interval(values, draws=4000)
    error = values.std() / np.sqrt(2000)
    # The ends of 4000 draws have a standard deviation of about 4 % of the error.
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.2 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.2 * error)


def test_a_wider_level_holds_a_narrower_one():
    values = np.arange(100)
    narrow, wide = (bootstrap_interval(values, level=level) for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < 49.5 < narrow[1] < wide[1]


def test_seeds_decide():
    values = np.arange(50)
    assert bootstrap_interval(values, seed=1) == bootstrap_interval(values, seed=1)
    assert bootstrap_interval(values, seed=1) != bootstrap_interval(values, seed=2)


def test_tensors_and_arrays_are_the_same():
    right = torch.arange(90) % 3 == 0
    assert bootstrap_interval(right) == bootstrap_interval(right.numpy())
    assert bootstrap_interval(right.bfloat16()) == bootstrap_interval(right.double())


def test_any_statistic_and_rows_stay_together():
    rows = np.stack([np.arange(40), 2 * np.arange(40)], axis=1)
    ratio = bootstrap_interval(rows, lambda drawn: float(drawn[:, 1].sum() / drawn[:, 0].sum()))
    assert ratio == pytest.approx((2, 2))
    low, high = bootstrap_interval(rows[:, 0], lambda drawn: float(np.median(drawn)))
    assert low < 19.5 < high


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([], {}, "at least one value"),
        (3.0, {}, "at least one value"),
        ([1.0, float("nan")], {}, "NaN"),
        (["a"], {}, "numbers to draw from"),
        ([1.0], {"level": 95}, "between 0 and 1, got 95; did you mean 0.95"),
        ([1.0], {"level": 0.0}, "between 0 and 1, got 0.0$"),
        ([1.0], {"draws": 0}, "draws >= 1, got 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(values, options, message):
    with pytest.raises(AcclimateError, match=message):
        bootstrap_interval(values, **options)
