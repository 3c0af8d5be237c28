"""Whether two benchmarks put models in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = ["RankCorrelations", "rank_correlations", "spearman"]

Values: TypeAlias = Sequence[float] | Tensor


@dataclass(frozen=True)
class RankCorrelations:
    """Spearman's coefficient of each column with one reference, their mean, and what it rests on.

    The paper's figure for ImageNet-D is the mean of the coefficients of its domains, not the
    coefficient of their mean.
    """

    coefficients: dict[str, float]
    mean: float
    models: int


def rank_correlations(columns: Mapping[str, Values], reference: Values) -> RankCorrelations:
    """Correlate the errors on each domain with those on another benchmark, model by model.

    >>> errors = {"sketch": [80.0, 70.0, 60.0], "real": [40.0, 40.5, 39.0]}
    >>> rank_correlations(errors, [63.0, 58.0, 53.0])
    RankCorrelations(coefficients={'sketch': 1.0, 'real': 0.5}, mean=0.75, models=3)
    """
    if not columns:
        raise AcclimateError("expected at least one column to correlate, got none")
    coefficients = {name: spearman(values, reference) for name, values in columns.items()}
    return RankCorrelations(
        coefficients=coefficients,
        mean=sum(coefficients.values()) / len(coefficients),
        models=len(reference),
    )


def spearman(x: Values, y: Values) -> float:
    """Spearman's rank correlation: Pearson's of the ranks, tied values sharing their mean rank.

    >>> spearman([1.0, 2.0, 3.0, 4.0], [10.0, 30.0, 20.0, 40.0])
    0.8

    Raises:
        AcclimateError: for fewer than two pairs, values that are not finite, or a constant side,
            for which no correlation is defined.
    """
    first, second = _checked(x, "x"), _checked(y, "y")
    if len(first) != len(second):
        raise AcclimateError(
            f"expected as many values in x as in y, got {len(first)} and {len(second)}; give one "
            "pair per model"
        )
    from scipy.stats import rankdata  # slow to import

    # Ranks doubled are whole numbers, so centring them over n keeps everything exact in float64.
    a, b = (len(first) * 2 * rankdata(values) for values in (first, second))
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def _checked(values: Values, side: str) -> NDArray[np.float64]:
    numbers = torch.as_tensor(values, dtype=torch.float64).detach().cpu().numpy()
    if numbers.ndim != 1 or len(numbers) < 2:
        raise AcclimateError(
            f"expected a flat list of two or more values as {side}, got shape {numbers.shape}"
        )
    bad = int((~np.isfinite(numbers)).sum())
    if bad:
        raise AcclimateError(
            f"expected finite values as {side}, got {bad} that are not; leave these models out of "
            "both x and y"
        )
    if (numbers == numbers[0]).all():
        raise AcclimateError(
            f"expected values that differ as {side}, got {len(numbers)} times {numbers[0]:g}; a "
            "constant has no rank correlation"
        )
    return numbers
