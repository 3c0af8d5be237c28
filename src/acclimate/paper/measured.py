"""From the results of a cell's jobs to its number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from acclimate.bench.job import UNADAPTED
from acclimate.bench.record import Result
from acclimate.bench.selection import leave_one_out, place_of, settings_of
from acclimate.metrics import CORRUPTIONS, DEV_CORRUPTIONS, mce, mde
from acclimate.metrics.mean import Shifts, by_seeds, mean, mean_over_shifts, spread
from acclimate.paper.needs import FROST
from acclimate.paper.plan import ON_OTHERS, CellPlan, Try, scored_elsewhere
from acclimate.paper.tables import Cell
from acclimate.text import counted

__all__ = ["Measured", "measured"]

_SPREAD_OVER_SHIFTS = ("ECE", "accuracy")  # tbl:ece and tbl:forgetting print that deviation
_THROUGH_THE_MAP = {"filtered error": "filtered_error", "unmappable share": "unmappable_percent"}
_NOTES = 3


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The number of a cell, from runs or without.

    Attributes:
        value: None where something is missing.
        how: "measured" in runs, "counted" from a model or the label map, "simulated" with the
            two-point model; "library" where it is a number that the library goes by, which
            compares the library with the paper and measures nothing.
        by_batch: the same with the statistics of each batch rather than of all images, which is how
            the paper predicts; None where that is no other number, or was not measured.
        std: the deviation, and ``over`` what: seeds or corruptions.
        missing: what is not there, in words.
        setting: of a search, what was best.
        series: of a figure by epochs, the number after each.
        images: labelled images behind one seed's number.
        notes: what one should know.
    """

    value: float | None
    how: Literal["measured", "counted", "library", "simulated"] = "measured"
    by_batch: float | None = None
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
    cell = plan.cell
    if missing := _missing(plan, results):
        return Measured(value=None, missing=missing)
    if cell.shift == "frost" and any(results[j.key].corruption != "frost" for j in plan.jobs):
        return Measured(value=None, missing=str(FROST))
    readings = [
        reading
        for each in plan.tries
        for epoch in each.epochs or (None,)
        if (reading := _read(cell, each, results, epoch)) is not None
    ]
    if not readings:
        older = "; stored by an older version, another --store runs them anew"
        more = older if cell.metric in _THROUGH_THE_MAP else ""
        return Measured(value=None, missing=f"the runs have no {cell.metric}{more}")
    if cell.chosen_on == ON_OTHERS:
        return _chosen_on_others(plan, results)
    sign = -1 if cell.metric == "accuracy" else 1
    best = min(readings, key=lambda reading: sign * reading.value)
    found = _of_runs(best.tried, results)
    searched = cell.search and (len(plan.tries) > 1 or best.epoch is not None)
    if searched:
        options = {name: best.tried.options[name] for name in cell.search}
        options |= {} if best.epoch is None else {"epochs": best.epoch}
        found = replace(found, setting=", ".join(f"{k} {v}" for k, v in options.items()))
    # Where the paper draws a line over epochs: its points.
    if cell.published is None and not cell.diverged and cell.epochs and cell.metric == "error":
        points = (_read(cell, best.tried, results, n) for n in range(1, cell.epochs + 1))
        found = replace(found, series=tuple(each.value for each in points if each is not None))
    by_batch = _by_batch(cell, best, results)
    return replace(found, value=best.value, by_batch=by_batch, std=best.std, over=best.over)


def _by_batch(cell: Cell, best: _Reading, results: Mapping[str, Result]) -> float | None:
    """What a reading of the returned model would be with the statistics of each batch."""
    errors = cell.metric in ("error", "mCE", "mDE") and not scored_elsewhere(cell)
    if best.epoch is not None or not errors or cell.recipe == UNADAPTED:
        return None

    def number(result: Result) -> float | None:
        after = result.record.errors.after_epoch
        return after[-1] if after else result.online_error

    found = _read(cell, best.tried, results, None, number=number)
    return None if found is None else found.value


def _missing(plan: CellPlan, results: Mapping[str, Result]) -> str:
    if not plan.tries:
        return "nothing was to be run"
    keys = list(dict.fromkeys(job.key for job in plan.jobs))
    failed = [results[key] for key in keys if key in results and results[key].status == "failed"]
    absent = sum(key not in results for key in keys)
    words = []
    if failed:
        words.append(f"{len(failed):,} of {len(keys):,} jobs failed: {failed[0].reason}")
    if absent:
        words.append(f"{absent:,} of {len(keys):,} jobs not run")
    return "; ".join(words)


class _Reading(NamedTuple):
    """The mean over seeds of one setting, after an epoch or, where that is None, at the end."""

    tried: Try
    epoch: int | None
    value: float
    std: float | None = None
    over: str | None = None


def _read(
    cell: Cell,
    tried: Try,
    results: Mapping[str, Result],
    epoch: int | None,
    *,
    number: Callable[[Result], float | None] | None = None,
) -> _Reading | None:
    """What the results of a setting come to; None where a number is missing."""
    found = []
    for job in tried.jobs:
        result = results[job.key]
        value = _number(cell, result, epoch) if number is None else number(result)
        if value is None:
            return None
        found.append((job.seed, result.corruption, job.severity, value))
    seeds = by_seeds(found)
    values = [value for shifts in seeds.values() if (value := _mean(cell, shifts)) is not None]
    if not values or len(values) < len(seeds):
        return None
    reading = _Reading(tried, epoch, mean(values))
    if len(values) > 1:
        return reading._replace(std=spread(values), over="seeds")
    if cell.metric in _SPREAD_OVER_SHIFTS and cell.shift is not None and len(found) > 1:
        return reading._replace(std=spread([each[-1] for each in found]), over="corruptions")
    return reading


def _number(cell: Cell, result: Result, epoch: int | None) -> float | None:
    """A cell's metric of one result, in percent."""
    if cell.metric == "ECE":
        return None if result.ece is None else 100 * result.ece
    if cell.metric in _THROUGH_THE_MAP:
        value: float | None = getattr(result.record, _THROUGH_THE_MAP[cell.metric])
        return value
    if cell.metric == "online error":
        return result.online_error
    error = result.error if epoch is None else result.after_epoch(epoch)
    if result.job.forgetting:
        error = result.record.forgetting.after
    return 100 - error if cell.metric == "accuracy" and error is not None else error


def _mean(cell: Cell, shifts: Shifts) -> float | None:
    if cell.metric not in ("mCE", "mDE"):
        return mean_over_shifts(shifts)
    # Divided by AlexNet's mean over severities, as fig:detailed-severities does for each of them.
    errors = {str(name): mean(list(values.values())) for name, values in shifts.items()}
    if not errors:
        return None
    if cell.metric == "mDE":
        return mde(errors, partial=True).value
    corruptions = DEV_CORRUPTIONS if cell.shift == "dev" else CORRUPTIONS
    return mce(errors, corruptions=corruptions, partial=True).value


def _chosen_on_others(plan: CellPlan, results: Mapping[str, Result]) -> Measured:
    """Each domain with what is best on the others, as ``acclimate tune --leave-one-out`` has it."""
    chosen = leave_one_out(settings_of(plan.jobs, results))
    names = {place_of(job).corruption: results[job.key].corruption for job in plan.jobs}
    errors = {names[place]: choice.measured["error"] for place, choice in chosen.items()}
    known: Shifts = {n: {None: error} for n, error in errors.items() if error is not None}
    if len(known) < len(names):
        return Measured(value=None, missing="nothing could be chosen on the other domains")
    setting = "what is best on the other domains, for each"
    found = _of_runs(plan.tries[0], results)
    return replace(found, value=_mean(plan.cell, known), setting=setting)


def _of_runs(tried: Try, results: Mapping[str, Result]) -> Measured:
    """The labelled images of one seed, and the notes of the runs."""
    records = [(job.seed, results[job.key].record) for job in tried.jobs]
    counts = [record.labelled for seed, record in records if seed == records[0][0]]
    known = [count for count in counts if count is not None]
    notes = list(dict.fromkeys(note for _, record in records for note in record.notes))
    more = len(notes) - _NOTES
    rest = [f"and {counted(more, 'more note')} in the store"] if more > 0 else []
    return Measured(
        value=None,
        images=sum(known) if len(known) == len(counts) else None,
        notes=(*notes[:_NOTES], *rest),
    )
