"""Reliability: how often a model is right, by how confident it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acclimate.bench.record import Result
from acclimate.report.charts import Curve, Figure, axis, lines
from acclimate.report.settings import View

__all__ = ["pooled", "reliability_figure"]

_DRAWN = 0.001
"""Of all images, that a bin must hold for its accuracy to be more than chance."""
_SHARES = range(0, 101, 20)


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """The curve over all images of several results, and the calibration error of that curve."""

    points: Sequence[tuple[float, float]]
    ece: float
    images: int


def pooled(results: Sequence[Result]) -> Pooled | None:
    """The reliability curves of results as one: bins add up by their counts.

    >>> from acclimate.bench import Job
    >>> job = Job(model="m", dataset="d", recipe="none")
    >>> bins = [{"low": 0.5, "high": 1.0, "count": 4, "confidence": 0.9, "accuracy": 0.5}]
    >>> curve = pooled([Result(job=job, record={"reliability": bins})])
    >>> curve.points, round(curve.ece, 3), curve.images
    ([(0.9, 0.5)], 0.4, 4)
    """
    sums: dict[float, list[float]] = {}
    for bin_ in (each for result in results for each in result.record.reliability if each["count"]):
        count, total = bin_["count"], sums.setdefault(bin_["low"], [0.0, 0.0, 0.0])
        for place, share in enumerate((1, bin_["confidence"], bin_["accuracy"])):
            total[place] += count * share
    if not sums:
        return None
    bins = [sums[low] for low in sorted(sums)]
    images = sum(count for count, *_ in sums.values())
    return Pooled(
        points=[
            (confidence / n, right / n) for n, confidence, right in bins if n >= _DRAWN * images
        ],
        ece=sum(abs(confidence - right) for _, confidence, right in sums.values()) / images,
        images=int(images),
    )


def reliability_figure(view: View) -> Figure | None:
    """A curve for each recipe; on the diagonal a model is as often right as it says."""
    curves, notes = [], []
    for shown in view.alike:
        curve = pooled(shown.results)
        if curve is not None:
            recipe = shown.setting.recipe
            name = f"{recipe}: ECE {curve.ece:.3f}{shown.name.removeprefix(recipe)}"
            points = [(100 * confidence, 100 * right) for confidence, right in curve.points]
            curves.append(Curve(name, recipe, points))
            notes.append(f"{recipe}: {curve.images:,} images pooled over corruptions and seeds.")
    if not curves:
        return None
    errors = "; ".join(curve.name for curve in curves)
    return lines(
        curves,
        view.looks,
        name="reliability",
        title=view.title,
        description=f"Accuracy by confidence. Calibration errors: {errors}.",
        x=axis("confidence %", 0, 102, values=_SHARES),
        y=axis("accuracy %", 0, 102, values=_SHARES),
        notes=[*notes, *view.left_out],
        diagonal=102,
    )
