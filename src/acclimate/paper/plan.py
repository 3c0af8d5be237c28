"""What is run for tables: for each cell jobs for every shift, severity and seed, or why none."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from acclimate.bench import choices as files
from acclimate.bench.choices import Choices, Chosen
from acclimate.bench.job import UNADAPTED, Job, Value, Weights
from acclimate.bench.shifts import job_shifts
from acclimate.data.benchmarks import find_dataset
from acclimate.data.corruptions import frost_kind
from acclimate.data.shift import SEVERITIES, STAND_INS, plain_shift
from acclimate.errors import AcclimateError
from acclimate.methods.registry import get_recipe, list_recipes
from acclimate.models.checkpoints import checkpoints
from acclimate.paper.chosen import ships
from acclimate.paper.needs import (
    FROST,
    Available,
    Lack,
    Place,
    clean_lack,
    fill_path,
    find_place,
    weights_lack,
    weights_note,
)
from acclimate.paper.tables import NO_RUN, Cell, Table
from acclimate.presets import find_preset

__all__ = [
    "ON_OTHERS", "CellPlan", "Scope", "TablePlan", "Try", "chosen_for", "jobs_of",
    "longest_runs", "not_by_jobs", "notes_of", "plan_cell", "plan_tables", "read_by_epoch",
    "read_choices", "scored_elsewhere", "shifts_of", "tries_of",
]  # fmt: skip

ON_OTHERS = "the other domains"
"""What a cell is chosen on where each domain is left out in turn: its own runs decide."""

Longest: TypeAlias = Mapping[Hashable, int]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What is left out of every measurement.

    Attributes:
        images: only so many of each shift; None is all.
        severities: only these, where the paper has the mean of five.
        shifts: only these corruptions or domains; none named is all.
        incomplete: data sets with gaps are accepted.

    >>> Scope(images=20, severities=(5,)).words
    '20 images a shift, severity 5 only'
    >>> Scope().small, Scope().words
    (False, '')
    """

    images: int | None = None
    severities: tuple[int, ...] = SEVERITIES
    shifts: tuple[str, ...] = ()
    incomplete: bool = False

    def __post_init__(self) -> None:
        if self.images is not None and self.images < 1:
            raise AcclimateError(f"expected --images-per-shift >= 1, got {self.images}")
        wrong = [severity for severity in self.severities if severity not in SEVERITIES]
        if wrong or not self.severities:
            raise AcclimateError(
                f"expected severities of 1 to 5, got {wrong[0] if wrong else 'none'}"
            )
        object.__setattr__(self, "severities", tuple(sorted(set(self.severities))))

    @property
    def small(self) -> bool:
        """Whether anything is left out, so that no number compares with a published one."""
        return bool(self.words)

    @property
    def words(self) -> str:
        """What is left out, for every line of the output; empty where nothing is."""
        many = "severities" if len(self.severities) > 1 else "severity"
        parts = {
            f"{self.images or 0:,} images a shift": self.images is not None,
            f"{many} {', '.join(map(str, self.severities))} only": self.severities != SEVERITIES,
            f"{', '.join(self.shifts)} only": self.shifts,
            "data sets with gaps allowed": self.incomplete,
        }
        return ", ".join(words for words, left_out in parts.items() if left_out)

    def to_dict(self) -> dict[str, Any] | None:
        """Plain values, for JSON; None where nothing is left out."""
        return {**vars(self), "words": self.words} if self.small else None


@dataclass(frozen=True, kw_only=True)
class Try:
    """One setting of a cell's options, and a job for every shift, severity and seed.

    Errors are read off after each of the ``epochs``, or where there are none at the end of a run.
    """

    options: Mapping[str, Value]
    epochs: tuple[int, ...] = ()
    jobs: tuple[Job, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """A cell, and what is run for it: one try, or those of a search, of which the best counts.

    ``lacks`` is what is missing, and then there are no tries; ``notes`` tell what differs from what
    the paper did, ``small`` what is left out.
    """

    cell: Cell
    tries: tuple[Try, ...] = ()
    lacks: tuple[Lack, ...] = ()
    notes: tuple[str, ...] = ()
    small: str = ""

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All of them."""
        return tuple(job for each in self.tries for job in each.jobs)


@dataclass(frozen=True, kw_only=True)
class TablePlan:
    """A table, and what is run for each of its cells."""

    table: Table
    cells: tuple[CellPlan, ...]
    scope: Scope


def plan_tables(
    tables: Sequence[Table],
    *,
    available: Available,
    scope: Scope | None = None,
    choices: Choices | None = None,
) -> list[TablePlan]:
    """What is run for tables. Cells that differ in their epochs alone share a run."""
    scope = scope or Scope()
    longest = longest_runs(cell for table in tables for cell in table.to_run)

    def planned(cell: Cell) -> CellPlan:
        return plan_cell(cell, available=available, scope=scope, choices=choices, longest=longest)

    return [
        TablePlan(table=table, cells=tuple(map(planned, table.cells)), scope=scope)
        for table in tables
    ]


def jobs_of(plans: Iterable[TablePlan]) -> list[Job]:
    """The jobs of tables, each once, those that share model and images next to each other."""

    def shared(job: Job) -> tuple[str, ...]:
        weights = "" if job.weights is None else job.weights.sha256
        return (job.model, weights, job.dataset, job.split or "", job.shift or "", job.recipe)

    jobs = {job.key: job for plan in plans for cell in plan.cells for job in cell.jobs}
    return sorted(jobs.values(), key=shared)


def longest_runs(cells: Iterable[Cell]) -> dict[Hashable, int]:
    """The most epochs of cells that differ in nothing else: one run has the errors of all."""
    epochs: dict[Hashable, set[int]] = {}
    for cell in cells:
        if cell.epochs is not None and read_by_epoch(cell):
            epochs.setdefault(_family(cell), set()).add(cell.epochs)
    return {family: max(found) for family, found in epochs.items() if len(found) > 1}


def read_by_epoch(cell: Cell) -> bool:
    """An error after an epoch can be read off; other metrics are known at the end alone."""
    return cell.metric in ("error", "mCE", "mDE")


def _family(cell: Cell) -> Hashable:
    options = tuple(sorted(cell.options.items()))
    what = (cell.model, cell.weights, cell.dataset, cell.split, cell.recipe, cell.seeds, options)
    return (*what, read_by_epoch(cell))


def plan_cell(
    cell: Cell,
    *,
    available: Available,
    scope: Scope | None = None,
    choices: Choices | None = None,
    longest: Longest | None = None,
) -> CellPlan:
    """The jobs of a cell, with what is available.

    ``choices`` are hyper-parameters chosen beforehand, ``longest`` the runs of which this cell's
    epochs are a part, from `longest_runs`.

    >>> from acclimate.paper.tables import find_table
    >>> plan = plan_cell(find_table("tbl:groupnorm").cells[2], available=Available())
    >>> plan.cell.column, [lack.what for lack in plan.lacks]
    ('RPL', ['cifar10-c'])
    """
    scope, choices = scope or Scope(), choices or Choices()
    if cell.metric in NO_RUN and not cell.published_only:
        return CellPlan(cell=cell)
    if (lack := not_by_jobs(cell)) is not None:
        return CellPlan(cell=cell, lacks=(lack,))
    shifts, severities = shifts_of(cell, scope)
    if not shifts and cell.shift is not None:
        left_out = Lack(kind="scope", what="left out", how=scope.words)
        return CellPlan(cell=cell, lacks=(left_out,))
    place = find_place(cell, available, shifts, severities)
    file = available.file(cell)
    tries = tries_of(cell, choices, longest or {})
    weights = weights_lack(cell, file, shifts, severities)
    stand_in = isinstance(place, Place) and _frost_stands_in(place, shifts)
    frost = FROST if stand_in and cell.shift == "frost" else None
    found = (place, weights, clean_lack(cell, available), tries, frost)
    lacks = [each for each in found if isinstance(each, Lack)]
    if isinstance(place, Lack) or isinstance(tries, Lack) or lacks:
        return CellPlan(cell=cell, lacks=tuple(dict.fromkeys(lacks)))
    every = [
        f"{place.prefix}{name}{severity}"
        for name in shifts
        for severity in ([f":{s}" for s in severities] or [""])
    ]
    first = Job(
        model=str(cell.model),
        dataset=place.dataset,
        recipe=str(cell.recipe),
        images=scope.images,
        split=place.split,
        forgetting=scored_elsewhere(cell),
    )
    adapts = cell.recipe != UNADAPTED
    seeds = range(cell.seeds if adapts else 1)  # nothing is drawn where nothing is adapted
    shifted = [replace(first, shift=shift) for shift in job_shifts(place.dataset, every)]
    jobs = [
        replace(job, seed=seed, weights=_weights(file, job)) for job in shifted for seed in seeds
    ]

    def tried(each: Try) -> Try:
        options = tuple(each.options.items()) if adapts else ()
        return replace(each, jobs=tuple(replace(job, options=options) for job in jobs))

    return CellPlan(
        cell=cell,
        tries=tuple(map(tried, tries)),
        small=scope.words,
        notes=notes_of(cell, place, tries, choices, file, stand_in=stand_in),
    )


def scored_elsewhere(cell: Cell) -> bool:
    """Adapted to one data set and scored on another, even where one is made from the other."""
    return cell.scored_on is not None and cell.scored_on != cell.dataset


def not_by_jobs(cell: Cell) -> Lack | None:
    """How to get what no job measures; None for the rest."""
    if cell.published_only:
        how = "published only, not run here"
        if cell.recipe != UNADAPTED and cell.recipe in {each.name for each in list_recipes()}:
            how += f"; acclimate bench --recipes {cell.recipe} runs the method"
        return Lack(kind="others", what=cell.source or "another's method", how=how)
    if cell.metric == "most predicted classes":
        words = f"--model {cell.model} --dataset {cell.dataset} --shift {cell.shift} --root DIR"
        how = f"a store keeps no single predictions; acclimate evaluate {words} prints them"
        return Lack(kind="predictions", what=cell.metric, how=how)
    if cell.metric in ("filtered error", "unmappable share") and cell.dataset == "imagenet":
        how = (
            "ImageNet's own images are not scored through the map of ImageNet-D; "
            "acclimate.metrics.filtered_error does it with predictions and that map"
        )
        return Lack(kind="predictions", what=cell.metric, how=how)
    return None


def shifts_of(cell: Cell, scope: Scope) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The corruptions or domains of a cell that are run, and their severities."""
    if cell.shift is None:
        return (), ()
    record = find_dataset(str(cell.dataset))
    groups = {"dev": record.dev, "test": record.test, "all": record.shifts}
    names = groups.get(cell.shift, (cell.shift,))
    shifts = tuple(n for n in names if not scope.shifts or plain_shift(n) in scope.shifts)
    if not record.severities:
        return shifts, ()
    severities = tuple(s for s in scope.severities if cell.severity in (None, s))
    return (shifts, severities) if severities else ((), ())


def _weights(file: str | None, job: Job) -> Weights | None:
    if file is None:
        return None
    shift = plain_shift(job.corruption or "")
    return Weights.of(fill_path(file, shift=shift, severity=job.severity))


def read_choices(*paths: str | Path) -> Choices:
    """Choice files whose options are for all images, as a cell has one setting for all."""
    found = files.read_choices(*paths)
    for recipes in found.chosen.values():
        for recipe, chosen in recipes.items():
            if chosen.options is None:
                raise AcclimateError(
                    f"{found.source} (--choice) has options of {recipe} for each shift, where a "
                    "cell of the paper has one setting for all; choose on hold-out corruptions"
                )
    return found


def chosen_for(cell: Cell, choices: Choices) -> Mapping[str, Value]:
    """The options that were chosen for a cell; none where it is chosen by its own runs.

    >>> from acclimate.paper.tables import find_table
    >>> cell = find_table("tbl:groupnorm").cells[2]
    >>> chosen_for(cell, Choices.of({"*": {"rpl": {"epochs": 2}}}))
    {'epochs': 2}
    """
    found = _choice(cell, choices)
    return {} if found is None or found.options is None else found.options


def _choice(cell: Cell, choices: Choices) -> Chosen | None:
    if cell.model is None or cell.recipe is None or cell.chosen_on == ON_OTHERS:
        return None
    return choices.find(cell.model, cell.recipe)


def tries_of(cell: Cell, choices: Choices, longest: Longest) -> tuple[Try, ...] | Lack:
    """What a cell is run with, or why that is not known.

    What the cell states comes first, then what was chosen beforehand, which is not searched again,
    then the paper's preset, however many images there are; the rest are the library's defaults,
    which a run finds by itself.
    """
    options: dict[str, Value] = {
        **_preset_of(cell), **chosen_for(cell, choices), **cell.options,
    }  # fmt: skip
    if cell.epochs is not None:
        shared = longest.get(_family(cell))
        # All of a shared run are read off alike, its last epoch too: the error after an epoch is
        # with batch statistics, that of the returned model with those of all images.
        read = () if shared is None else (cell.epochs,)
        return (Try(options={**options, "epochs": shared or cell.epochs}, epochs=read),)
    search = {name: tried for name, tried in cell.search.items() if name not in options}
    if not search:
        return (Try(options=options),)
    if not all(search.values()):
        how = "the paper does not say which were tried; acclimate bench --set sweeps your own"
        return Lack(kind="unstated", what=", ".join(search), how=how)
    if cell.chosen_on is None or cell.chosen_on not in (cell.shift, cell.split, ON_OTHERS):
        how = (
            "the best setting is chosen on other images than it is scored on: choose with "
            "acclimate tune, then --choice FILE"
        )
        return Lack(kind="tune", what="needs acclimate tune", how=how)
    grid = {name: tried for name, tried in search.items() if name != "epochs"}
    epochs = tuple(int(number) for number in search.get("epochs", ()))
    last = {"epochs": max(epochs)} if epochs else {}
    return tuple(
        Try(options={**options, **dict(zip(grid, values, strict=True)), **last}, epochs=epochs)
        for values in product(*grid.values())
    )


def _preset_of(cell: Cell) -> dict[str, Value]:
    """What the paper chose for a cell's model; a run would take it for as many images alone."""
    preset = find_preset(str(cell.recipe), model_name=str(cell.model))
    if preset is None or "batch_size" in cell.options:  # with which the rate goes
        return {}
    found: dict[str, Value] = {"optimizer.lr": preset.lr, "epochs": preset.epochs}
    return {name: value for name, value in found.items() if name not in cell.search}


def _frost_stands_in(place: Place, shifts: Sequence[str]) -> bool:
    """Whether frost is made here with textures of our own."""
    return place.preset is not None and "frost" in shifts and frost_kind() in STAND_INS


def notes_of(
    cell: Cell,
    place: Place,
    tries: Sequence[Try],
    choices: Choices,
    file: str | None,
    *,
    stand_in: bool,
) -> tuple[str, ...]:
    """What differs from what the paper did, and where hyper-parameters come from.

    ``stand_in``: whether frost is of our own textures.
    """
    notes = []
    own = checkpoints().get(str(cell.model).removeprefix("acclimate:"))
    if own is not None:
        clean = f"{own.error:.1f} % error on {own.error_on}"
        notes.append(f"the network is this package's own ({clean}), not the paper's")
    if place.preset is not None:
        notes.append(f"{cell.dataset} is made on the fly from {place.dataset}")
    if stand_in:
        notes.append("frost has textures of our own (frost-procedural), which the mean is over")
    if cell.recipe not in (None, UNADAPTED) and get_recipe(cell.recipe).learns:
        notes += _setting_notes(cell, tries, choices)
    return (*notes, *filter(None, [weights_note(cell, file)]))


def _setting_notes(cell: Cell, tries: Sequence[Try], choices: Choices) -> list[str]:
    recipe, first = get_recipe(str(cell.recipe)), tries[0]
    notes = []
    tried = sum(max(1, len(each.epochs)) for each in tries) if cell.search else 1
    if tried > 1:
        on_others = f"chosen on {ON_OTHERS}: best of {tried} settings there"
        oracle = f"selection=oracle: best of {tried} settings by the labels it is scored on"
        notes.append(on_others if cell.chosen_on == ON_OTHERS else oracle)
    after_epoch = (
        "errors after an epoch are with batch statistics; the returned model, which other tables "
        "score, has statistics of all images"
    )
    if cell.search and first.epochs:
        notes.append(after_epoch)
    chosen, papers = _choice(cell, choices), _preset_of(cell)
    if chosen is not None and ships(chosen):
        notes.append("learning rate and epochs: chosen by this project on hold-out corruptions")
    elif chosen_for(cell, choices):
        marks = f" ({'; '.join(choices.marks)})" if choices.marks else ""
        notes.append(f"options of --choice{marks}")
    elif tried == 1 and papers and papers.items() <= first.options.items():
        notes.append("learning rate and epochs: the paper's preset")
    elif tried == 1 and "optimizer.lr" not in first.options:
        own = "learning rate: the recipe's own; the paper prints none"
        usual = "learning rate and epochs: the library's defaults; the paper prints none"
        notes.append(usual if recipe.optimizer.lr is None else own)
    if first.epochs and not cell.search:
        last = first.options["epochs"]
        notes += [f"read off after epoch {first.epochs[0]} of a run of {last}", after_epoch]
    return notes
