"""The page of a comparison of recipes on one set of images."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.adaptation.compare import Comparison
from acclimate.report.templates import rendered

__all__ = ["comparison_page"]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An error and the ends of its interval, in percent, beside a name."""

    name: str
    value: float
    low: float
    high: float
    best: bool
    known: bool


def comparison_page(comparison: Comparison) -> str:
    """The page: the conclusion, a bar for each recipe, the table.

    >>> from acclimate.adaptation.compare import ComparedRecipe
    >>> none = ComparedRecipe(recipe="none", verdict="unchanged", reason="")
    >>> page = comparison_page(
    ...     Comparison(model="net", images=5, labelled=0, by="estimate", recipes=(none,))
    ... )
    >>> page[:15], "<h1>net</h1>" in page
    ('<!doctype html>', True)
    """
    return rendered("comparison.html", comparison=comparison, bars=_bars(comparison))


def _bars(comparison: Comparison) -> list[Bar]:
    bars = []
    for row in comparison.recipes:
        labelled = row.error if comparison.by == "labels" else None
        ends = labelled or row.estimated
        if ends is None or ends.low is None or ends.high is None:
            continue
        bars.append(
            Bar(
                name=row.recipe,
                value=ends.value,
                low=ends.low,
                high=ends.high,
                best=row.recipe == comparison.best,
                known=labelled is not None,
            )
        )
    return bars
