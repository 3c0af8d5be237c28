"""Reliability: how often a model is right, by how confident it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acclimate.bench.choices import Choices
from acclimate.bench.record import Result
from acclimate.report.charts import Curve, Figure, axis, lines
from acclimate.report.settings import (
    Found,
    Panel,
    looks,
    panel_words,
    setting_words,
    side_by_side,
)

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
    for result in results:
        for each in result.record.reliability:
            if each["count"]:
                total = sums.setdefault(each["low"], [0.0, 0.0, 0.0])
                total[0] += each["count"]
                total[1] += each["count"] * each["confidence"]
                total[2] += each["count"] * each["accuracy"]
    if not sums:
        return None
    images = sum(total[0] for total in sums.values())
    return Pooled(
        points=[
            (total[1] / total[0], total[2] / total[0])
            for _, total in sorted(sums.items())
            if total[0] >= _DRAWN * images
        ],
        ece=sum(abs(total[1] - total[2]) for total in sums.values()) / images,
        images=int(images),
    )


def reliability_figure(
    panel: Panel,
    found: Found,
    *,
    choices: Sequence[Choices] = (),
) -> Figure | None:
    """A curve for each recipe; on the diagonal a model is as often right as it says."""
    shown, left_out = side_by_side(panel, found, choices=choices)
    curves, notes = [], []
    for chosen in shown:
        curve = pooled(chosen.results)
        if curve is None:
            continue
        recipe = chosen.setting.recipe
        words = setting_words(chosen.setting).removeprefix(recipe)
        name = f"{recipe}: ECE {curve.ece:.3f}{words}"
        points = [(100 * confidence, 100 * right) for confidence, right in curve.points]
        curves.append(Curve(name, recipe, points))
        notes.append(f"{recipe}: {curve.images:,} images pooled over corruptions and seeds.")
    if not curves:
        return None
    return lines(
        curves,
        looks(found),
        name="reliability",
        title=panel_words(panel, found),
        description="Accuracy by confidence. Calibration errors: "
        + "; ".join(curve.name for curve in curves)
        + ".",
        x=axis("confidence %", 0, 102, values=_SHARES),
        y=axis("accuracy %", 0, 102, values=_SHARES),
        notes=[*notes, *left_out],
        diagonal=102,
    )
