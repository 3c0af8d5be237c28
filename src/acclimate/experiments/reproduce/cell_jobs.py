"""What is run for a cell: jobs for every shift, severity and seed, or why there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from acclimate.corruption_names import plain_shift
from acclimate.data.benchmarks import find_dataset
from acclimate.experiments._shift_words import job_shifts
from acclimate.experiments.choices import Choices
from acclimate.experiments.job import UNADAPTED, Job, Options, Value, Weights
from acclimate.experiments.paper import Cell
from acclimate.experiments.reproduce.at_hand import AtHand, filled
from acclimate.experiments.reproduce.needs import Lack, Place, find_place, lacking_weights, to_fetch
from acclimate.experiments.reproduce.notes import notes_of
from acclimate.experiments.reproduce.scope import Scope
from acclimate.experiments.reproduce.searching import Longest, Setting, settings_of
from acclimate.recipes import list_recipes

__all__ = ["CellPlan", "Try", "needs_no_run", "plan_cell"]

NO_RUN = {"parameters", "adapted parameters", "classes", "optimizer.lr", "batch_size", "epochs"}
"""Metrics that are counted, or known to the library; nothing is run for them."""

_DRAWN = "most predicted classes"
_MAPPED = {"filtered error", "unmappable share"}


@dataclass(frozen=True, kw_only=True)
class Try:
    """One setting of a cell's options, and the jobs that measure it.

    Attributes:
        setting: its options, and after which epochs errors are read off.
        jobs: one for every shift, severity and seed.
    """

    setting: Setting
    jobs: tuple[Job, ...]


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """A cell, and what is run for it.

    Attributes:
        cell: the number of the paper.
        tries: one, or one for each setting of a search of which the best counts.
        lacks: what is missing; then there are no tries.
        notes: what differs from what the paper did.
    """

    cell: Cell
    tries: tuple[Try, ...] = ()
    lacks: tuple[Lack, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All of them."""
        return tuple(job for each in self.tries for job in each.jobs)


def needs_no_run(cell: Cell) -> bool:
    """Whether a cell is counted rather than run."""
    return cell.metric in NO_RUN


def plan_cell(
    cell: Cell,
    *,
    hand: AtHand,
    scope: Scope | None = None,
    choices: Choices | None = None,
    longest: Longest | None = None,
) -> CellPlan:
    """The jobs of a cell, with what is at hand.

    Args:
        cell: of a table of the paper.
        hand: the data and weights there are.
        scope: what is left out.
        choices: hyper-parameters chosen beforehand.
        longest: runs of which this cell's epochs are a part, from `longest_runs`.

    >>> from acclimate.experiments.paper import find_table
    >>> plan = plan_cell(find_table("tbl:groupnorm").cells[2], hand=AtHand())
    >>> plan.cell.column, [lack.what for lack in plan.lacks]
    ('RPL', ['cifar10-c'])
    """
    scope, choices = scope or Scope(), choices or Choices()
    if cell.published_only:
        whose, how = cell.source or "another's method", "published only, not run here"
        if cell.recipe != UNADAPTED and cell.recipe in {each.name for each in list_recipes()}:
            how += f"; acclimate bench --recipes {cell.recipe} runs the method"
        return _lacking(cell, Lack(kind="others", what=whose, how=how))
    if needs_no_run(cell):
        return CellPlan(cell=cell)
    if (otherwise := _not_by_jobs(cell)) is not None:
        return _lacking(cell, Lack(kind="predictions", what=cell.metric, how=otherwise))
    names = _names(cell, scope)
    severities = scope.severities_of(cell.severity) if _severe(cell) else ()
    if not names or (_severe(cell) and not severities):
        return _lacking(cell, Lack(kind="scope", what="left out", how=scope.words))
    shifts = tuple(name for name in names if name is not None)
    place = find_place(cell, hand, shifts, severities)
    file = hand.file(cell)
    found = settings_of(cell, choices=choices, longest=longest)
    lacks = [
        each
        for each in (
            place,
            lacking_weights(cell, file, shifts, severities),
            _clean(cell, hand),
            found,
        )
        if isinstance(each, Lack)
    ]
    if lacks or isinstance(place, Lack) or isinstance(found, Lack):
        return CellPlan(cell=cell, lacks=tuple(dict.fromkeys(lacks)))
    tries = tuple(
        Try(setting=setting, jobs=_jobs(cell, place, setting, names, severities, file, scope))
        for setting in found
    )
    notes = (*notes_of(cell, place, found, choices), *filter(None, [to_fetch(cell, file)]))
    return CellPlan(cell=cell, tries=tries, notes=notes)


def _lacking(cell: Cell, lack: Lack) -> CellPlan:
    return CellPlan(cell=cell, lacks=(lack,))


def _not_by_jobs(cell: Cell) -> str | None:
    """How to get what no job tells; None for the rest."""
    if cell.metric == _DRAWN:
        words = f"--model {cell.model} --dataset {cell.dataset} --shift {cell.shift} --root DIR"
        return f"a store keeps no single answers; acclimate evaluate {words} prints them"
    if cell.metric in _MAPPED and cell.dataset == "imagenet":
        return (
            "ImageNet's own images are not scored through the map of ImageNet-D; "
            "acclimate.metrics.filtered_error does it with predictions and that map"
        )
    return None


def _severe(cell: Cell) -> bool:
    return cell.shift is not None and find_dataset(str(cell.dataset)).severities


def _names(cell: Cell, scope: Scope) -> tuple[str | None, ...]:
    """The corruptions or domains of a cell that are run; (None,) where it has none."""
    if cell.shift is None:
        return (None,)
    record = find_dataset(str(cell.dataset))
    groups = {"dev": record.dev, "test": record.test, "all": record.shifts}
    return tuple(name for name in groups.get(cell.shift, (cell.shift,)) if scope.has(name))


def _clean(cell: Cell, hand: AtHand) -> Lack | None:
    """Forgetting is measured on another data set, which has to be there as well."""
    if cell.scored_on is None:
        return None
    problem = hand.problem(cell.scored_on)
    if problem is None:
        return None
    if cell.scored_on in hand.roots:
        return Lack(kind="data", what=cell.scored_on, how=problem)
    record = find_dataset(cell.scored_on)
    how = f"{record.get} ({record.size}), then --root {cell.scored_on}=DIR"
    return Lack(kind="data", what=cell.scored_on, how=how)


def _jobs(
    cell: Cell,
    place: Place,
    setting: Setting,
    names: Sequence[str | None],
    severities: Sequence[int],
    file: str | None,
    scope: Scope,
) -> tuple[Job, ...]:
    recipe = str(cell.recipe)
    first = Job(
        model=str(cell.model),
        dataset=place.dataset,
        recipe=recipe,
        options=_options(setting.options) if recipe != UNADAPTED else (),
        images=scope.images,
        split=place.split,
        forgetting=_is_forgetting(cell),
    )
    words = [
        f"{place.prefix}{name}{severity}"
        for name in names
        if name is not None
        for severity in ([f":{s}" for s in severities] or [""])
    ]
    # Nothing is drawn where nothing is adapted.
    seeds = range(cell.seeds if recipe != UNADAPTED else 1)
    shifted = [replace(first, shift=shift) for shift in job_shifts(place.dataset, words)]
    return tuple(
        replace(job, seed=seed, weights=_weights(file, job)) for job in shifted for seed in seeds
    )


def _is_forgetting(cell: Cell) -> bool:
    """Adapted to one data set and scored on another, even where the one is made from the other."""
    return cell.scored_on is not None and cell.scored_on != cell.dataset


def _options(options: Mapping[str, Value]) -> Options:
    return tuple(options.items())


def _weights(file: str | None, job: Job) -> Weights | None:
    if file is None:
        return None
    shift = plain_shift(job.corruption or "")
    return Weights.of(filled(file, shift=shift, severity=job.severity))
