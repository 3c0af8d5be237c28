"""Published numbers beside measured ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

from acclimate.bench.choices import Choices
from acclimate.bench.job import Value
from acclimate.bench.record import Result
from acclimate.paper import Scope, StoredResults, measured
from acclimate.paper.tables import tables
from acclimate.parts.base import PARTS
from acclimate.report import charts
from acclimate.report.charts import Figure, Spec, axis, padded
from acclimate.report.settings import Shown
from acclimate.table import Table, number_entry

__all__ = ["PublishedPoint", "published_figure", "published_points"]

_METRICS = ("error", "online error", "mCE", "mDE", "ECE")
_LISTED = 400


@dataclass(frozen=True, kw_only=True)
class PublishedPoint:
    """A number of the paper and what was measured for it; ``small`` says what that leaves out."""

    label: str
    published: float
    measured: float
    small: str = ""


def published_points(
    results: Iterable[Result], shown: Sequence[Shown] = ()
) -> list[PublishedPoint]:
    """The cells of the paper whose jobs are all there, each once.

    Where a recipe ran with several options, those it is ``shown`` with elsewhere in the report
    count, unless it is their error on what is shown that speaks for them.
    """
    stored = StoredResults(results)
    jobs = [result.job for result in stored.by_key.values()]
    models = {job.model for job in jobs}
    severities = tuple(sorted({job.severity for job in jobs if job.severity is not None}))
    # The whole first: fewer severities count only where there is nothing else.
    scopes = [Scope(), *([Scope(severities=severities)] if severities else [])]
    points = []
    for cell in (cell for table in tables() for cell in table.to_run):
        if cell.model not in models or cell.published is None or cell.metric not in _METRICS:
            continue
        tried = product(scopes, [*_choices(shown), Choices()])
        plans = (stored.plan(cell, scope=scope, choices=choices) for scope, choices in tried)
        plan = next((plan for plan in plans if plan is not None and plan.jobs), None)
        value = None if plan is None else measured(plan, stored.by_key).value
        if plan is not None and value is not None:
            label = f"{cell.table}: {cell.row}, {cell.column} ({cell.metric})"
            points.append(PublishedPoint(label=label, published=cell.published,
                                         measured=value, small=plan.small))  # fmt: skip
    return points


def _choices(shown: Sequence[Shown]) -> list[Choices]:
    """The options of settings that stand for a recipe, as choice files would have them.

    One for each of several data sets, weights and numbers of images.
    """
    found: dict[Hashable, dict[str, dict[str, dict[str, Value]]]] = {}
    for each in shown:
        job = each.results[0].job
        # With another part (selector=all, say) it is another method than the cell's.
        same_method = not any(name in PARTS for name, _ in each.setting.options)
        once = job.setting is None and job.group == "test"
        if once and same_method and not each.mixed and not each.by_shown_error:
            options = found.setdefault((job.dataset, job.weights, job.images), {})
            options.setdefault(job.model, {})[each.setting.recipe] = dict(each.setting.options)
    return [Choices.of(options) for options in found.values()]


def published_figure(points: Sequence[PublishedPoint]) -> Figure | None:
    """A dot for each number; on the diagonal both agree.

    >>> published_figure([]) is None
    True
    >>> figure = published_figure([PublishedPoint(label="t: a, b", published=20.0, measured=21.5)])
    >>> [str(entry) for entry in figure.table.rows[0][:1]]
    ['t: a, b']
    """
    if not points:
        return None
    rows = [
        [p.label, *map(number_entry, (p.published, p.measured, p.measured - p.published)),
         p.small or "whole"]
        for p in sorted(points, key=lambda p: -abs(p.measured - p.published))
    ]  # fmt: skip
    table = Table(
        name="published",
        title="Published and measured, largest difference first",
        header=["cell", "published", "measured", "difference", "version"],
        rows=rows,
    )
    return Figure(
        name="published-and-measured",
        title=f"{len(points):,} numbers of the paper, published and measured",
        description=_apart(points),
        spec=_scatter(points),
        table=table.first(_LISTED, rest="acclimate reproduce shows whole tables"),
    )


def _scatter(points: Sequence[PublishedPoint]) -> Spec:
    values = [
        {"label": p.label, "published": p.published, "measured": p.measured,
         "line": p.small or "whole"}
        for p in points
    ]  # fmt: skip
    groups = [small or "whole" for small in sorted({p.small for p in points})]
    of = charts.by_line({group: charts.nth_look(number) for number, group in enumerate(groups)})
    low, high = padded([n for p in points for n in (p.published, p.measured)], least=0.0)
    x, y = (axis(f"{name} %", low, high) for name in ("published", "measured"))
    tooltip = [{"field": "label", "title": "cell"}, {"field": "line", "title": "version"},
               {"field": "published"}, {"field": "measured", "format": ".1f"}]  # fmt: skip
    return {
        "width": "container",
        "height": 340,
        "data": {"values": values},
        "layer": [
            charts.grey_line([(low, low), (high, high)], x, y),
            {"params": [charts.CLICKED], "mark": {"type": "point", "filled": True, "size": 50},
             "encoding": {"x": {"field": "published", **x}, "y": {"field": "measured", **y},
                          "color": of["color"], "shape": of["shape"], "opacity": charts.FADED,
                          "tooltip": tooltip}},
        ],
    }  # fmt: skip


def _apart(points: Sequence[PublishedPoint]) -> str:
    """How far the numbers are apart that are of all shifts and images."""
    gaps = [abs(point.measured - point.published) for point in points if not point.small]
    if not gaps:
        return "None is measured on all that the paper's number is of: their distance says little."
    some = f"Those measured in full ({len(gaps):,} of {len(points):,})"
    which = "They" if len(gaps) == len(points) else some
    return f"{which} differ by {fmean(gaps):.1f} on average, by {max(gaps):.1f} at most."
