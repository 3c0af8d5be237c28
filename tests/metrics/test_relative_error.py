"""mCE, mDE and mean error: their formulas, what they refuse, and what they say of themselves."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acclimate.errors import AcclimateError
from acclimate.metrics import (
    ALEXNET_CORRUPTIONS,
    ALEXNET_DOMAINS,
    CORRUPTIONS,
    DEV_CORRUPTIONS,
    DOMAINS,
    ErrorCounts,
    Figure,
    bootstrap_interval,
    mce,
    mde,
    mean_error,
)

PERCENT = st.floats(0, 100)
COUNTS = {
    name: [ErrorCounts.of(wrong=100 + 7 * i + 20 * s, images=400) for s in range(5)]
    for i, name in enumerate(CORRUPTIONS)
}


@given(st.lists(PERCENT, min_size=15, max_size=15))
def test_mce_is_the_mean_of_ratios(values):
    errors = dict(zip(CORRUPTIONS, values, strict=True))
    ratios = [100 * e / ALEXNET_CORRUPTIONS[name] for name, e in errors.items()]
    result = mce(dict(reversed(errors.items())))
    assert result.value == pytest.approx(np.mean(ratios))
    assert list(result.parts.values()) == pytest.approx(ratios)
    assert float(result) == result.value


def test_severities_are_averaged_whatever_holds_them():
    means = {name: 10.0 + i for i, name in enumerate(CORRUPTIONS)}
    spread = np.array([-4.0, -2.0, 0.0, 1.0, 5.0])
    expected = mce(means).value
    for kind in (list, tuple, np.array, torch.tensor):
        assert mce({n: kind((m + spread).tolist()) for n, m in means.items()}).value == (
            pytest.approx(expected)
        )
    for kind in (np.float32, torch.tensor, int):
        assert mce({n: kind(m) for n, m in means.items()}).value == pytest.approx(expected)


@given(st.lists(PERCENT, min_size=6, max_size=6))
def test_mde_is_the_mean_of_ratios(values):
    errors = dict(zip(DOMAINS, values, strict=True))
    result = mde(errors)
    assert result.value == pytest.approx(
        np.mean([100 * e / ALEXNET_DOMAINS[name] for name, e in errors.items()])
    )
    assert result.parts["real"] == pytest.approx(100 * errors["real"] / 54.887)


def test_alexnet_is_100():
    alexnet = {name: ALEXNET_CORRUPTIONS[name] for name in CORRUPTIONS}
    assert mce(alexnet).value == pytest.approx(100)
    assert mde(ALEXNET_DOMAINS).value == pytest.approx(100)
    assert mce(alexnet, baseline=dict.fromkeys(CORRUPTIONS, 100.0)).value == pytest.approx(
        np.mean(list(alexnet.values()))
    )


def test_what_is_missing_is_named():
    errors = {name: 50.0 for name in CORRUPTIONS if name not in ("fog", "snow")}
    with pytest.raises(AcclimateError, match=r"15 corruptions.*got 13; missing: snow, fog\. "):
        mce(errors)
    result = mce(errors, partial=True)
    assert result.notes == ("over 13 of 15 corruptions",)
    assert "over 13 of 15 corruptions" in str(result)
    assert set(result.parts) == set(errors)
    assert (result.expected, mce({**errors, "fog": 1.0, "snow": 1.0}).notes) == (15, ())
    with pytest.raises(AcclimateError, match="missing: real, sketch"):
        mde(dict.fromkeys(DOMAINS[:4], 50.0))
    assert str(mde({"real": 54.887 / 2}, partial=True)).endswith("; over 1 of 6 domains")
    with pytest.raises(AcclimateError, match="15 corruptions for the mCE, got 0"):
        mce({}, partial=True)


def test_our_own_frost_counts_as_frost_and_says_so():
    errors = dict.fromkeys(CORRUPTIONS, 40.0)
    expected = mce(errors)
    errors["frost-procedural"] = errors.pop("frost")
    result = mce(errors)
    assert (result.value, dict(result.parts)) == (expected.value, expected.parts)
    assert "frost-procedural stands in for frost" in str(result)
    with pytest.raises(AcclimateError, match="one of 'frost' and 'frost-procedural', got both"):
        mce({**errors, "frost": 40.0})


def test_hold_out_corruptions_are_a_mean_of_their_own():
    errors = {name: ALEXNET_CORRUPTIONS[name] / 4 for name in DEV_CORRUPTIONS}
    result = mce(errors, corruptions=DEV_CORRUPTIONS)
    assert result.value == pytest.approx(25)
    assert "hold-out" in str(result)
    with pytest.raises(AcclimateError, match=r"got speckle_noise, .*DEV_CORRUPTIONS"):
        mce({**dict.fromkeys(CORRUPTIONS, 1.0), "speckle_noise": 1.0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"gausian_noise": 1.0},
            "unknown corruption 'gausian_noise'; did you mean 'gaussian_noise'",
        ),
        ({"fog": float("nan")}, "between 0 and 100 percent for 'fog', got nan"),
        ({"fog": 100.1}, "between 0 and 100 percent for 'fog', got 100.1"),
        ({"fog": -0.1}, "between 0 and 100 percent for 'fog', got -0.1"),
        ({"fog": [1.0, 2.0, 3.0, 4.0, float("inf")]}, "'fog', got inf"),
        ({"fog": [1.0, 2.0]}, "'fog' at 5 severities, got 2"),
        ({"fog": []}, "'fog', got an empty sequence"),
        ({"fog": "12"}, "error in percent for 'fog', or one per severity, got '12'"),
        ({"fog": None}, "error in percent for 'fog', or one per severity, got None"),
        ({"fog": [1.0, None, 2.0, 3.0, 4.0]}, "error in percent for 'fog', got None"),
        ({"fog": ErrorCounts()}, "is the data set empty"),
    ],
)
def test_what_is_no_error_is_refused(change, message):
    with pytest.raises(AcclimateError, match=message):
        mce({**dict.fromkeys(CORRUPTIONS, 50.0), **change})


def test_what_is_no_domain_error_or_baseline_is_refused():
    errors = dict.fromkeys(DOMAINS, 50.0)
    with pytest.raises(AcclimateError, match="unknown domain 'Sketch'; did you mean 'sketch'"):
        mde({**errors, "Sketch": 1.0})
    with pytest.raises(AcclimateError, match="one error for 'real', got 5"):
        mde({**errors, "real": [1.0] * 5})
    with pytest.raises(AcclimateError, match=r"baseline error above 0.*'real', got 0.0"):
        mde(errors, baseline={**ALEXNET_DOMAINS, "real": 0.0})
    with pytest.raises(AcclimateError, match="baseline error for the domain 'clipart', got none"):
        mde(errors, baseline={"real": 50.0})
    with pytest.raises(AcclimateError, match="at least one shift"):
        mean_error({})


def test_images_are_counted_where_they_are_known():
    assert mce(COUNTS).images == 15 * 5 * 400
    figures = {name: Figure(value=50.0, images=20) for name in DOMAINS}
    assert mde(figures).images == 120
    assert mde({**figures, "real": 50.0}).images is None
    assert mde(dict.fromkeys(DOMAINS, 50.0), images=7).images == 7
    assert mean_error(COUNTS).images == 30_000
    assert mean_error({"a": [Figure(value=50.0, images=20), 50.0]}).images is None
    assert mean_error({"a": 1.0, "b": [2.0, 4.0]}).value == 2


def test_the_interval_is_that_of_drawing_every_cell_anew():
    result = mce(COUNTS, interval=0.9, draws=4000)
    rng = np.random.default_rng(5)
    errors = {name: np.array([c.error().value for c in cells]) for name, cells in COUNTS.items()}
    drawn = [
        mce({n: 100 * rng.binomial(400, e / 100) / 400 for n, e in errors.items()}).value
        for _ in range(2000)
    ]
    expected = np.percentile(drawn, [5, 95])
    width = expected[1] - expected[0]
    assert [result.figure.low, result.figure.high] == pytest.approx(expected, abs=0.1 * width)
    assert result.figure.low < result.value < result.figure.high
    assert result == mce(dict(reversed(COUNTS.items())), interval=0.9, draws=4000)
    with pytest.raises(AcclimateError, match="only the error of 'fog'"):
        mce({**COUNTS, "fog": 50.0}, interval=0.9)
    with pytest.raises(AcclimateError, match=r"did you mean 0\.95"):
        mde({n: ErrorCounts.of(wrong=1, images=2) for n in DOMAINS}, interval=95)


def test_drawing_images_is_wider_where_the_same_ones_are_shown_again():
    """As the page says: a hard image is hard under every corruption."""
    rng = np.random.default_rng(0)
    hard = rng.random((400, 1)) < 0.4
    wrong = np.where(rng.random((400, 15)) < 0.8, hard, rng.random((400, 15)) < 0.4)
    baseline = np.array([ALEXNET_CORRUPTIONS[name] for name in CORRUPTIONS])
    low, high = bootstrap_interval(wrong, lambda w: float((1e4 * w.mean(axis=0) / baseline).mean()))
    counts = {
        name: ErrorCounts.of(wrong=int(column.sum()), images=400)
        for name, column in zip(CORRUPTIONS, wrong.T, strict=True)
    }
    result = mce(counts, interval=0.95)
    assert low < result.value < high
    assert high - low > 2 * (result.figure.high - result.figure.low)


def test_results_survive_pickling():
    result = mce(COUNTS, interval=0.9)
    assert pickle.loads(pickle.dumps(result)) == result
