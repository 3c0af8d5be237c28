"""What stored results measure of the paper: the plan of a cell, of jobs that were run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from acclimate.bench.choices import Choices
from acclimate.bench.job import UNADAPTED, Job, Options, Value, Weights
from acclimate.bench.plan import MADE_FROM, split_of
from acclimate.bench.record import Result
from acclimate.data.shift import STAND_INS, plain_shift
from acclimate.errors import AcclimateError
from acclimate.methods.registry import get_recipe
from acclimate.paper.estimate import IMAGES
from acclimate.paper.needs import FROST, Available, Lack, Place
from acclimate.paper.plan import (
    ON_OTHERS,
    CellPlan,
    Scope,
    TablePlan,
    Try,
    longest_runs,
    not_by_jobs,
    notes_of,
    read_by_epoch,
    scored_elsewhere,
    shifts_of,
    tries_of,
)
from acclimate.paper.tables import NO_RUN, OWN, Cell, own_tables, tables, with_models
from acclimate.recipe import Recipe
from acclimate.text import option_words

__all__ = ["StoredResults", "with_stored"]

_TUNED = ("optimizer.lr", "epochs")
"""What is chosen for a model and leaves the method the same."""

_Where = tuple[str | None, int | None]  # corruption or domain, and severity


@dataclass(frozen=True)
class _Runs:
    """The results of one setting, on all that a cell is of."""

    results: tuple[Result, ...]

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple(each.job for each in self.results)

    @property
    def options(self) -> dict[str, Value]:
        return dict(self.results[0].job.options)

    @property
    def weights(self) -> str:
        """The name of their file; "" where the model brought its own."""
        file = self.results[0].job.weights
        return "" if file is None else Path(file.path).name

    @property
    def images(self) -> int:
        return sum(each.record.labelled or each.record.images or 0 for each in self.results)


class StoredResults:
    """Results by what they measure: what was run counts, wherever its files lay and lie now.

    Runs must be of a cell's model, method, images and seeds. Learning rate and epochs may have been
    chosen: with ``choices`` these count, else the paper's, else the only ones there are; of several
    none counts, since it is the labels that would choose.

    Args:
        results: of a store; failed ones, streams and further draws of corruptions are left out.
        weights: a file by model, or by row, as in `Available`: whose it is, where a model stands
            for several networks of the paper.
        models: others that run in place of the paper's, as for `with_models`.
    """

    def __init__(
        self,
        results: Iterable[Result],
        *,
        weights: Mapping[str, str] | None = None,
        models: Mapping[str, str] | None = None,
    ) -> None:
        self.by_key = {each.key: each for each in results if each.status == "done"}
        self._found: dict[tuple[str, str], list[Result]] = defaultdict(list)
        for each in self.by_key.values():
            job = each.job
            if job.setting is None and job.batch_size is None and not job.draw:
                self._found[job.model, job.recipe].append(each)
        self._files = Available(weights=weights or {})
        every = (*tables(), *own_tables())
        there = {cell.model for table in every for cell in table.to_run}
        ours = {name: other for name, other in (models or {}).items() if name in there}
        cells = [cell for table in with_models(every, ours) for cell in table.to_run]
        self._longest = longest_runs(cells)
        self._meant: dict[str | None, set[str]] = defaultdict(set)
        for cell in cells:
            if cell.weights and not cell.table.startswith(OWN):
                self._meant[cell.model].add(cell.weights)

    def plan(
        self, cell: Cell, *, scope: Scope | None = None, choices: Choices | None = None
    ) -> CellPlan | None:
        """The jobs behind a cell's number, with the most images; None where some are missing."""
        scope, choices = scope or Scope(), choices or Choices()
        if cell.metric in NO_RUN or not_by_jobs(cell) is not None:
            return None
        runs = self._runs(cell, scope)
        for images in sorted({each.images for each in runs}, reverse=True):
            alike = [each for each in runs if each.images == images]
            found = self._as_planned(cell, alike, scope, choices) or _only_one(cell, alike, scope)
            if found is not None:
                return found
        return None

    def _runs(self, cell: Cell, scope: Scope) -> list[_Runs]:
        """Every setting that went everywhere, with as many seeds as the cell is a mean of."""
        shifts, severities = shifts_of(cell, scope)
        if cell.shift is not None and not shifts:
            return []
        wanted = {(n, s) for n in shifts or (None,) for s in severities or (None,)}
        places, forgetting = _places(cell), scored_elsewhere(cell)
        groups: dict[Hashable, dict[int, dict[_Where, Result]]] = {}
        for result in self._found[str(cell.model), str(cell.recipe)]:
            job, name = result.job, result.corruption
            where = (None if name is None else plain_shift(name), job.severity)
            if _place(job) not in places or where not in wanted or job.forgetting != forgetting:
                continue
            if not (self._fits(cell, job.weights) and _same_method(cell, job.options)):
                continue
            group = groups.setdefault((_place(job), job.images, job.weights, job.options), {})
            at = group.setdefault(job.seed, {})
            if where not in at or where[0] == name:  # frost itself before what stands in for it
                at[where] = result
        seeds = cell.seeds if cell.recipe != UNADAPTED else 1
        found = []
        for by_seed in groups.values():
            whole = [by_seed[seed] for seed in sorted(by_seed) if by_seed[seed].keys() == wanted]
            if len(whole) >= seeds:
                found.append(_Runs(tuple(r for each in whole[:seeds] for r in each.values())))
        return found

    def _fits(self, cell: Cell, weights: Weights | None) -> bool:
        """Whether weights are those that a cell's row is of, as far as their name tells."""
        file = self._files.file(cell)
        if file is not None:
            return weights is not None and Path(weights.path).name == Path(file).name
        if cell.weights is None:
            return True
        return weights is not None and len(self._meant[cell.model]) == 1

    def _as_planned(
        self, cell: Cell, runs: list[_Runs], scope: Scope, choices: Choices
    ) -> CellPlan | None:
        """With what would be run today: what was chosen, then the paper's own."""
        for chosen, longest in ((choices, self._longest), (choices, {}), (Choices(), {})):
            tries = tries_of(cell, chosen, longest)
            if isinstance(tries, Lack):
                continue
            ran = [next((r for r in runs if _alike(cell, r, each)), None) for each in tries]
            filled = [(each, r) for each, r in zip(tries, ran, strict=True) if r is not None]
            if len(filled) == len(tries):
                return _plan(cell, filled, scope, chosen)
        return None


def with_stored(
    plans: Iterable[TablePlan], stored: StoredResults, choices: Choices | None = None
) -> list[TablePlan]:
    """Tables whose cells have the jobs that were run for them, where all of these were."""

    def found(plan: CellPlan, scope: Scope) -> CellPlan:
        return stored.plan(plan.cell, scope=scope, choices=choices) or plan

    return [
        replace(table, cells=tuple(found(cell, table.scope) for cell in table.cells))
        for table in plans
    ]


def _only_one(cell: Cell, runs: list[_Runs], scope: Scope) -> CellPlan | None:
    """With learning rate and epochs that somebody chose, where there is one such setting."""
    fit: list[tuple[Try, _Runs]] = []
    for each in runs:
        ran = each.options.get("epochs")
        read: tuple[int, ...] = ()
        if cell.epochs not in (None, ran):
            # A longer run has passed this epoch; a shorter one, or one of unknown length, has not.
            if not (read_by_epoch(cell) and isinstance(ran, int) and ran > cell.epochs):
                continue
            read = (cell.epochs,)
        fit.append((Try(options=each.options, epochs=read), each))
    exact = [pair for pair in fit if not pair[0].epochs] or fit
    if cell.chosen_on == ON_OTHERS or len({pair[1].results[0].job.options for pair in exact}) != 1:
        return None
    return _plan(cell, [min(exact, key=lambda pair: pair[1].weights)], scope, Choices())


def _plan(cell: Cell, filled: list[tuple[Try, _Runs]], scope: Scope, choices: Choices) -> CellPlan:
    ran = filled[0][1]
    tries = tuple(replace(each, jobs=runs.jobs) for each, runs in filled)
    frost = any(each.corruption in STAND_INS for each in ran.results)
    if frost and cell.shift == "frost":
        return CellPlan(cell=cell, lacks=(FROST,))
    notes = notes_of(cell, _place(ran.jobs[0]), tries, choices, ran.weights or None, stand_in=frost)
    own = [f"weights of our own, {ran.weights}, not: {cell.weights}"] if cell.weights else []
    if len(filled) == 1 and ran.options:
        own.append(f"ran with {option_words(ran.options.items())}")
    here, whole = ran.images // len(ran.jobs), IMAGES[str(cell.dataset)]
    few = f"{here:,} of {whole:,} images a shift" if here < whole else ""
    small = ", ".join(filter(None, [few, scope.words]))
    return CellPlan(cell=cell, tries=tries, notes=(*notes, *own), small=small)


def _place(job: Job) -> Place:
    return Place(dataset=job.dataset, preset=job.preset, split=job.split)


def _places(cell: Cell) -> set[Place]:
    """Where a cell's images may come from: as published, or made from the clean ones."""
    dataset = str(cell.dataset)
    places = {Place(dataset=dataset, split=split_of(dataset, cell.split))}
    if dataset in MADE_FROM:
        clean, preset = MADE_FROM[dataset]
        places.add(Place(dataset=clean, preset=preset))
    return places


def _alike(cell: Cell, runs: _Runs, planned: Try) -> bool:
    """Whether runs had the options that are planned."""
    if cell.recipe == UNADAPTED:
        return True
    ours, theirs = runs.results[0].job.options, tuple(sorted(planned.options.items()))
    tuned = [tuple(name for name, _ in each if name in _TUNED) for each in (ours, theirs)]
    return tuned[0] == tuned[1] and _recipe(str(cell.recipe), ours) == _recipe(
        str(cell.recipe), theirs
    )


def _same_method(cell: Cell, options: Options) -> bool:
    """Whether options make the method of a cell, but for what was chosen for it."""
    if cell.recipe == UNADAPTED:
        return True
    stated = tuple(sorted(cell.options.items()))
    free = {*_TUNED, *cell.search} - cell.options.keys()
    left = tuple(pair for pair in options if pair[0] not in free)
    ours = _recipe(str(cell.recipe), left)
    return ours is not None and ours == _recipe(str(cell.recipe), stated)


@cache
def _recipe(name: str, options: Options) -> Recipe | None:
    """None where options are not, or no longer, those of the recipe."""
    try:
        return get_recipe(name, dict(options))
    except AcclimateError:
        return None
