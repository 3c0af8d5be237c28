"""Whether two benchmarks put models in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from acclimate.errors import AcclimateError

__all__ = ["RankCorrelations", "average_ranks", "rank_correlations", "spearman"]

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
    # Ranks doubled are whole numbers, so centring them over n keeps everything exact in float64.
    a, b = (len(first) * 2 * average_ranks(values) for values in (first, second))
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / ((a * a).sum() * (b * b).sum()).sqrt())


def average_ranks(values: Values) -> Tensor:
    """Ranks from 1; values that tie share the mean of the ranks they take up.

    >>> average_ranks([0.3, 0.1, 0.3])
    tensor([2.5000, 1.0000, 2.5000], dtype=torch.float64)
    """
    numbers = torch.as_tensor(values, dtype=torch.float64)
    _, group, sizes = numbers.unique(return_inverse=True, return_counts=True)
    last = sizes.cumsum(0).double()
    ranks: Tensor = (last - (sizes.double() - 1) / 2)[group]
    return ranks


def _checked(values: Values, side: str) -> Tensor:
    numbers = torch.as_tensor(values, dtype=torch.float64).detach().cpu()
    if numbers.ndim != 1 or len(numbers) < 2:
        raise AcclimateError(
            f"expected a flat list of two or more values as {side}, got shape "
            f"{tuple(numbers.shape)}"
        )
    if not bool(torch.isfinite(numbers).all()):
        bad = int((~torch.isfinite(numbers)).sum())
        raise AcclimateError(
            f"expected finite values as {side}, got {bad} that are not; leave these models out of "
            "both x and y"
        )
    if bool((numbers == numbers[0]).all()):
        raise AcclimateError(
            f"expected values that differ as {side}, got {len(numbers)} times "
            f"{float(numbers[0]):g}; a constant has no rank correlation"
        )
    return numbers
