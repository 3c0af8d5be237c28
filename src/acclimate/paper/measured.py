"""From the results of a cell's jobs to its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from acclimate.bench.job import Job
from acclimate.bench.record import Result
from acclimate.bench.selection import leave_one_out, place_of, settings_of
from acclimate.metrics import CORRUPTIONS, DEV_CORRUPTIONS, mce, mde
from acclimate.metrics.mean import Shifts, by_seeds, mean, mean_over_shifts, spread
from acclimate.paper.plan import ON_OTHERS, CellPlan, Try
from acclimate.paper.tables import Cell
from acclimate.text import counted

__all__ = ["Measured", "measured"]

_SPREAD_OVER_SHIFTS = ("ECE", "accuracy")  # tbl:ece and tbl:forgetting print that deviation
_THROUGH_THE_MAP = {"filtered error": "filtered_error", "unmappable share": "unmappable_percent"}
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
        notes: those of the runs.
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
    cell = plan.cell
    if not plan.tries:
        return Measured(value=None, missing="nothing was to be run")
    if missing := _missing(plan.jobs, results):
        return Measured(value=None, missing=missing)
    readings = [
        _Reading(cell=cell, tried=each, results=results, epoch=epoch)
        for each in plan.tries
        for epoch in each.epochs or (None,)
    ]
    known = {each.value: each for each in reversed(readings) if each.value is not None}
    if not known:
        older = "; stored by an older version, another --store runs them anew"
        more = older if cell.metric in _THROUGH_THE_MAP else ""
        return Measured(value=None, missing=f"the runs have no {cell.metric}{more}")
    if cell.chosen_on == ON_OTHERS:
        return _chosen_on_others(plan, results)
    value = max(known) if cell.metric == "accuracy" else min(known)
    best = known[value]
    std, over = best.spread
    return Measured(
        value=value,
        std=std,
        over=over,
        setting=_setting(plan, best),
        series=_series(best),
        images=_images(best.tried, results),
        notes=_notes(best.tried, results),
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


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """The results of one setting, read off after an epoch or, where that is None, at the end."""

    cell: Cell
    tried: Try
    results: Mapping[str, Result]
    epoch: int | None

    @cached_property
    def by_seed(self) -> Mapping[int, Shifts]:
        """For each seed the numbers by corruption and severity; empty where one is missing."""
        found = []
        for job in self.tried.jobs:
            result = self.results[job.key]
            number = _number(self.cell, result, self.epoch)
            if number is None:
                return {}
            found.append((job.seed, result.corruption, job.severity, number))
        return by_seeds(found)

    @cached_property
    def values(self) -> list[float]:
        """One for each seed."""
        values = [_mean(self.cell, shifts) for shifts in self.by_seed.values()]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else []

    @property
    def value(self) -> float | None:
        """The mean over seeds."""
        return mean(self.values) if self.values else None

    @property
    def spread(self) -> tuple[float | None, str | None]:
        """The deviation, and over what."""
        if len(self.values) > 1:
            return spread(self.values), "seeds"
        if self.cell.metric not in _SPREAD_OVER_SHIFTS or self.cell.shift is None:
            return None, None
        shifts = [shift for seed in self.by_seed.values() for shift in seed.values()]
        numbers = [number for severities in shifts for number in severities.values()]
        return (spread(numbers), "corruptions") if len(numbers) > 1 else (None, None)


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
    if error is None:
        return None
    return 100 - error if cell.metric == "accuracy" else error


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
    return Measured(
        value=_mean(plan.cell, known),
        setting="what is best on the other domains, for each",
        images=_images(plan.tries[0], results),
        notes=_notes(plan.tries[0], results),
    )


def _setting(plan: CellPlan, best: _Reading) -> str:
    if not plan.cell.search or (len(plan.tries) == 1 and best.epoch is None):
        return ""
    options = {name: best.tried.options[name] for name in plan.cell.search}
    if best.epoch is not None:
        options["epochs"] = best.epoch
    return ", ".join(f"{name} {value}" for name, value in options.items())


def _series(best: _Reading) -> tuple[float, ...]:
    """Where the paper draws a line over epochs: its points."""
    cell = best.cell
    if cell.published is not None or cell.diverged or not cell.epochs or cell.metric != "error":
        return ()
    points = [replace(best, epoch=epoch).value for epoch in range(1, cell.epochs + 1)]
    return tuple(point for point in points if point is not None)


def _images(each: Try, results: Mapping[str, Result]) -> int | None:
    first = each.jobs[0].seed
    counts = [results[job.key].record.labelled for job in each.jobs if job.seed == first]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _notes(each: Try, results: Mapping[str, Result]) -> tuple[str, ...]:
    notes = dict.fromkeys(note for job in each.jobs for note in results[job.key].record.notes)
    more = len(notes) - _NOTES
    rest = [f"and {counted(more, 'more note')} in the store"] if more > 0 else []
    return (*list(notes)[:_NOTES], *rest)
