"""Published numbers beside measured ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean

from acclimate.bench.choices import Choices
from acclimate.bench.job import Job, Value
from acclimate.bench.record import Result
from acclimate.paper import Available, Scope, measured, plan_cell
from acclimate.paper.plan import longest_runs
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


class _InStore(Available):
    """Images that results are of were available once; nothing is opened."""

    def problem(self, dataset: str, **_: object) -> str | None:
        return None if dataset in self.roots else "no results"


def published_points(
    results: Iterable[Result], shown: Sequence[Shown] = ()
) -> list[PublishedPoint]:
    """The cells of the paper whose jobs are all there, each once.

    Where a recipe ran with several options, those it is ``shown`` with elsewhere in the report
    count, unless it is their error on what is shown that speaks for them.
    """
    known = {result.key: result for result in results if result.status == "done"}
    jobs = [result.job for result in known.values()]
    models = {job.model for job in jobs}
    cells = [
        cell
        for table in tables()
        for cell in table.to_run
        if cell.model in models and cell.published is not None and cell.metric in _METRICS
    ]
    available = _InStore(roots={job.dataset: "" for job in jobs}, weights=_weights(jobs))
    severities = tuple(sorted({job.severity for job in jobs if job.severity is not None}))
    sizes = sorted({job.images for job in jobs}, key=lambda size: size or 1 << 60, reverse=True)
    # The whole first: a small version counts only where there is nothing else.
    scopes = [Scope(images=size) for size in sizes]
    scopes += [Scope(images=size, severities=severities) for size in sizes if severities]
    settings = [*_choices(shown), Choices()]
    # A run for one table may be longer than a cell asks for, and has its epoch among its own.
    of_all = longest_runs(cells)
    points = []
    for cell in cells:
        of_table = longest_runs(other for other in cells if other.table == cell.table)
        for scope, choices, longest in product(scopes, settings, (None, of_table, of_all)):
            plan = plan_cell(
                cell, available=available, scope=scope, choices=choices, longest=longest
            )
            if not plan.jobs or not all(job.key in known for job in plan.jobs):
                continue
            value = measured(plan, known).value
            if value is not None and cell.published is not None:
                label = f"{cell.table}: {cell.row}, {cell.column} ({cell.metric})"
                points.append(PublishedPoint(label=label, published=cell.published,
                                             measured=value, small=scope.words))  # fmt: skip
                break
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


def _weights(jobs: Iterable[Job]) -> dict[str, str]:
    """Files of models that were filled with just one, where it is still there."""
    files: dict[str, set[str]] = {}
    for job in jobs:
        if job.weights is not None:
            files.setdefault(job.model, set()).add(job.weights.path)
    wanted = Counter(
        model
        for model, _ in {(c.model, c.weights) for t in tables() for c in t.to_run if c.weights}
    )
    return {
        model: path
        for model, (path, *others) in files.items()
        # Which of several weights the file holds cannot be known here.
        if not others and wanted[model] <= 1 and Path(path).is_file()
    }


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
