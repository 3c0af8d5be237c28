"""The page of a comparison of recipes on one set of images."""

from __future__ import annotations

from acclimate.adaptation.compare import Comparison
from acclimate.report.templates import Bar, rendered

__all__ = ["comparison_page"]


def comparison_page(comparison: Comparison) -> str:
    """The page: the conclusion, a bar for each recipe, the table.

    >>> from acclimate.adaptation.compare import ComparedRecipe
    >>> none = ComparedRecipe(recipe="none", verdict="unchanged", reason="")
    >>> page = comparison_page(
    ...     Comparison(model="net", images=5, labelled=0, by="estimate", recipes=(none,))
    ... )
    >>> page[:15], "<h1>Recipes compared, for net</h1>" in page
    ('<!doctype html>', True)
    """
    return rendered("comparison.html", comparison=comparison, rows=_bars(comparison))


def _bars(comparison: Comparison) -> list[Bar]:
    bars = []
    for row in comparison.recipes:
        ends = row.error if comparison.by == "labels" else row.estimated
        if ends is not None:
            words = f"{ends.value:.1f}"
            if ends.low is not None and ends.high is not None:
                words = f"{words} ({ends.low:.0f} to {ends.high:.0f})"
            bars.append(
                Bar(name=row.recipe, words=words, value=ends.value, low=ends.low, high=ends.high)
            )
    return bars
