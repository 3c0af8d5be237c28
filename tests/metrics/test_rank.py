"""Rank correlations agree with scipy's and with the paper's figures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from acclimate.errors import AcclimateError
from acclimate.metrics.rank import rank_correlations, spearman

# tab:visda-robust-models: seven ResNet-50s, not adapted. Errors by domain, mCE, error on IN-R.
CLIPART = [76.0, 71.3, 73.4, 68.4, 70.8, 72.0, 68.4]
INFOGRAPH = [89.6, 88.6, 88.9, 88.6, 88.6, 88.8, 88.1]
PAINTING = [65.1, 62.6, 63.3, 60.6, 62.1, 61.4, 58.7]
QUICKDRAW = [99.2, 97.5, 99.2, 95.5, 99.1, 98.9, 98.2]
REAL = [40.1, 40.6, 39.9, 40.8, 39.0, 39.4, 39.2]
SKETCH = [82.0, 77.0, 80.8, 70.3, 78.5, 78.5, 75.2]
IN_C = [76.7, 69.3, 62.4, 60.7, 65.3, 60.4, 53.6]
IN_R = [63.9, 58.5, 61.0, 53.7, 58.9, 57.8, 53.2]
IN_D = {
    "clipart": CLIPART,
    "infograph": INFOGRAPH,
    "painting": PAINTING,
    "quickdraw": QUICKDRAW,
    "real": REAL,
    "sketch": SKETCH,
}


@pytest.mark.parametrize(("reference", "printed"), [(IN_C, 0.54), (IN_R, 0.73)])
def test_the_papers_figures_are_means_over_domains(reference, printed):
    found = rank_correlations(IN_D, reference)
    assert round(found.mean, 2) == printed
    assert found.models == 7
    for name, errors in IN_D.items():
        assert found.coefficients[name] == pytest.approx(spearmanr(errors, reference)[0])


@pytest.mark.parametrize(("reference", "rounded"), [(IN_C, 0.50), (IN_R, 0.86)])
def test_the_coefficient_of_the_mean_error_is_another_number(reference, rounded):
    mean_error = np.mean(list(IN_D.values()), axis=0)
    assert round(spearman(mean_error.tolist(), reference), 2) == rounded


def test_the_papers_words_on_single_domains():
    with_c = rank_correlations(IN_D, IN_C).coefficients
    with_r = rank_correlations(IN_D, IN_R).coefficients
    assert all(with_r[name] > 0.8 for name in IN_D if name != "real")
    assert abs(with_r["real"]) < 0.05
    assert [name for name in IN_D if with_c[name] > with_r[name]] == ["real"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 3)), min_size=2, max_size=30))
def test_agrees_with_scipy_ties_included(pairs):
    x, y = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    assume(len(set(x)) > 1 and len(set(y)) > 1)
    assert spearman(x, y) == pytest.approx(spearmanr(x, y)[0], abs=1e-12)
    assert spearman(x, x) == 1.0
    assert spearman(x, [-a for a in x]) == -1.0


def test_only_the_order_counts():
    x = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert spearman(x.exp(), y) == spearman(x, y)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1.0, float("nan")], [1.0, 2.0], "expected finite values as x, got 1"),
        ([1.0, 2.0], [float("inf"), float("nan")], "expected finite values as y, got 2"),
        ([1.0, 2.0, 3.0], [5.0, 5.0, 5.0], "values that differ as y, got 3 times 5"),
        ([1.0, 2.0, 3.0], [1.0, 2.0], "got 3 and 2"),
        ([1.0], [1.0], "two or more values"),
        ([], [], "two or more values"),
    ],
)
def test_what_has_no_rank_correlation_is_refused(x, y, message):
    with pytest.raises(AcclimateError, match=message):
        spearman(x, y)


def test_no_columns_are_refused():
    with pytest.raises(AcclimateError, match="at least one column"):
        rank_correlations({}, [1.0, 2.0])
