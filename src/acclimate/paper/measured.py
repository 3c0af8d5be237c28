"""From the results of a cell's jobs to its number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from acclimate.bench.job import Job
from acclimate.bench.record import Result
from acclimate.bench.selection import leave_one_out, place_of, settings_of
from acclimate.bench.table import Shifts, mean_of_means
from acclimate.metrics import CORRUPTIONS, DEV_CORRUPTIONS, mce, mde
from acclimate.paper.jobs import ON_OTHERS, CellPlan, Try
from acclimate.paper.tables import Cell
from acclimate.text import counted

__all__ = ["Measured", "measured"]

_SPREAD_OVER_SHIFTS = ("ECE", "accuracy")  # tbl:ece and tbl:forgetting print that deviation
_ANSWERS = {"filtered error": "filtered_error", "unmappable share": "unmappable_percent"}
_NOTES = 3


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured for a cell.

    Attributes:
        value: None where something is missing.
        std: the deviation, and ``over`` what: seeds or corruptions.
        missing: what is not there, in words.
        setting: of a search, what was best.
        series: of a figure by epochs, the number after each.
        images: labelled images behind one seed's number.
        notes: what runs said of themselves.
    """

    value: float | None
    std: float | None = None
    over: str | None = None
    missing: str = ""
    setting: str = ""
    series: tuple[float, ...] = ()
    images: int | None = None
    notes: tuple[str, ...] = ()


def measured(plan: CellPlan, results: Mapping[str, Result]) -> Measured:
    """The number of a cell from results by key of their job; None, and why, where not all are.

    >>> from acclimate.paper.tables import find_table
    >>> measured(CellPlan(cell=find_table("tbl:groupnorm").cells[1]), {}).missing
    'nothing was to be run'
    """
    if not plan.tries:
        return Measured(value=None, missing="nothing was to be run")
    missing = _missing(plan.jobs, results)
    if missing:
        return Measured(value=None, missing=missing)
    found = [
        (value, each, epoch)
        for each in plan.tries
        for epoch in each.setting.epochs or (None,)
        if (value := _value(plan.cell, each, results, epoch)) is not None
    ]
    if not found:
        older = "; kept by an older version, another --store runs them anew"
        more = older if plan.cell.metric in _ANSWERS else ""
        return Measured(value=None, missing=f"the runs have no {plan.cell.metric}{more}")
    if plan.cell.chosen_on == ON_OTHERS:
        return _chosen_on_others(plan, results)
    best = (max if plan.cell.metric == "accuracy" else min)(found, key=lambda item: item[0])
    value, chosen, epoch = best
    std, over = _spread(plan.cell, chosen, results, epoch)
    return Measured(
        value=value,
        std=std,
        over=over,
        setting=_setting(plan, chosen, epoch),
        series=_series(plan.cell, chosen, results),
        images=_images(chosen, results),
        notes=_said(chosen, results),
    )


def _chosen_on_others(plan: CellPlan, results: Mapping[str, Result]) -> Measured:
    """Each domain with what is best on the others, as ``acclimate tune --leave-one-out`` has it."""
    chosen = leave_one_out(settings_of(plan.jobs, results))
    names = {place_of(job).corruption: results[job.key].corruption for job in plan.jobs}
    errors = {names[place]: choice.measured["error"] for place, choice in chosen.items()}
    known: Shifts = {n: {None: error} for n, error in errors.items() if error is not None}
    if len(known) < len(names):
        return Measured(value=None, missing="nothing could be chosen on the other domains")
    return Measured(
        value=_reduction(plan.cell)(known),
        setting="what is best on the other domains, for each",
        images=_images(plan.tries[0], results),
        notes=_said(plan.tries[0], results),
    )


def _missing(jobs: Sequence[Job], results: Mapping[str, Result]) -> str:
    keys = list(dict.fromkeys(job.key for job in jobs))
    failed = [results[key] for key in keys if key in results and results[key].status == "failed"]
    absent = sum(key not in results for key in keys)
    words = []
    if failed:
        words.append(f"{len(failed):,} of {len(keys):,} jobs failed: {failed[0].reason}")
    if absent:
        words.append(f"{absent:,} of {len(keys):,} jobs not run")
    return "; ".join(words)


def _value(cell: Cell, each: Try, results: Mapping[str, Result], epoch: int | None) -> float | None:
    """The mean over seeds."""
    by_seed = _by_seed(cell, each, results, epoch)
    reduce = _reduction(cell)
    values = [reduce(shifts) for shifts in by_seed.values()]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _by_seed(
    cell: Cell, each: Try, results: Mapping[str, Result], epoch: int | None
) -> dict[int, dict[str | None, dict[int | None, float]]]:
    found: dict[int, dict[str | None, dict[int | None, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for job in each.jobs:
        result = results[job.key]
        number = _number(cell, result, epoch)
        if number is None:
            return {}
        found[job.seed][result.corruption][job.severity] = number
    return found


def _number(cell: Cell, result: Result, epoch: int | None) -> float | None:
    """What one result says of a cell's metric, in percent."""
    if cell.metric == "ECE":
        return None if result.ece is None else 100 * result.ece
    if cell.metric in _ANSWERS:
        value: float | None = getattr(result.record, _ANSWERS[cell.metric])
        return value
    if cell.metric == "online error":
        return result.online_error
    error = result.error if epoch is None else result.after_epoch(epoch)
    if result.job.forgetting:
        error = result.record.forgetting.after
    if error is None:
        return None
    return 100 - error if cell.metric == "accuracy" else error


def _reduction(cell: Cell) -> Callable[[Shifts], float | None]:
    if cell.metric == "mCE":
        return lambda shifts: _mce(shifts, DEV_CORRUPTIONS if cell.shift == "dev" else CORRUPTIONS)
    return _mde if cell.metric == "mDE" else mean_of_means


def _mce(shifts: Shifts, corruptions: Sequence[str]) -> float | None:
    # Divided by AlexNet's mean over severities, as fig:detailed-severities does for each of them.
    errors = {str(name): fmean(values.values()) for name, values in shifts.items()}
    return mce(errors, corruptions=corruptions, partial=True).value if errors else None


def _mde(shifts: Shifts) -> float | None:
    errors = {str(name): fmean(values.values()) for name, values in shifts.items()}
    return mde(errors, partial=True).value if errors else None


def _spread(
    cell: Cell, each: Try, results: Mapping[str, Result], epoch: int | None
) -> tuple[float | None, str | None]:
    by_seed = _by_seed(cell, each, results, epoch)
    if len(by_seed) > 1:
        values = [_reduction(cell)(shifts) for shifts in by_seed.values()]
        return stdev([value for value in values if value is not None]), "seeds"
    if cell.metric not in _SPREAD_OVER_SHIFTS or cell.shift is None:
        return None, None
    numbers = [v for shifts in by_seed.values() for s in shifts.values() for v in s.values()]
    return (stdev(numbers), "corruptions") if len(numbers) > 1 else (None, None)


def _setting(plan: CellPlan, chosen: Try, epoch: int | None) -> str:
    if not plan.cell.search or (len(plan.tries) == 1 and epoch is None):
        return ""
    options = {name: chosen.setting.options[name] for name in plan.cell.search}
    if epoch is not None:
        options["epochs"] = epoch
    return ", ".join(f"{name} {value}" for name, value in options.items())


def _series(cell: Cell, each: Try, results: Mapping[str, Result]) -> tuple[float, ...]:
    """Where the paper draws a line over epochs: its points."""
    if cell.published is not None or cell.diverged or not cell.epochs or cell.metric != "error":
        return ()
    points = [_value(cell, each, results, epoch) for epoch in range(1, cell.epochs + 1)]
    return tuple(point for point in points if point is not None)


def _images(each: Try, results: Mapping[str, Result]) -> int | None:
    first = each.jobs[0].seed
    counts = [results[job.key].record.labelled for job in each.jobs if job.seed == first]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _said(each: Try, results: Mapping[str, Result]) -> tuple[str, ...]:
    said = dict.fromkeys(note for job in each.jobs for note in results[job.key].record.notes)
    more = len(said) - _NOTES
    rest = [f"and {counted(more, 'more note')} in the store"] if more > 0 else []
    return (*list(said)[:_NOTES], *rest)
