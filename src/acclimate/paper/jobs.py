"""What is run for a cell: jobs for every shift, severity and seed, or why there are none."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from acclimate.bench import choices as files
from acclimate.bench.choices import Choices
from acclimate.bench.job import UNADAPTED, Job, Options, Value, Weights
from acclimate.bench.plan import job_shifts
from acclimate.data.benchmarks import find_dataset
from acclimate.data.names import SEVERITIES, plain_shift
from acclimate.errors import AcclimateError, unknown_name
from acclimate.methods.registry import get_recipe, list_recipes
from acclimate.models.checkpoints import checkpoints
from acclimate.paper.needs import AtHand, Lack, Place, filled, find_place, lacking_weights, to_fetch
from acclimate.paper.tables import Cell, Table, tables
from acclimate.presets import find_preset

__all__ = [
    "ON_OTHERS",
    "CellPlan",
    "Longest",
    "Scope",
    "Setting",
    "Try",
    "chosen_for",
    "find_tables",
    "longest_runs",
    "needs_no_run",
    "notes_of",
    "only_cells",
    "plan_cell",
    "read_choices",
    "settings_of",
]

ON_OTHERS = "the other domains"
"""What a cell is chosen on where each domain is left out in turn: its own runs tell."""


def chosen_for(cell: Cell, choices: Choices) -> Mapping[str, Value]:
    """The options that were chosen for a cell; none where it is chosen by its own runs.

    >>> from acclimate.paper.tables import find_table
    >>> cell = find_table("tbl:groupnorm").cells[2]
    >>> chosen_for(cell, Choices.of({"*": {"rpl": {"epochs": 2}}}))
    {'epochs': 2}
    """
    if cell.model is None or cell.recipe is None or cell.chosen_on == ON_OTHERS:
        return {}
    found = choices.find(cell.model, cell.recipe)
    return {} if found is None or found.options is None else found.options


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


Longest: TypeAlias = Mapping[Hashable, int]

_TUNE = (
    "the best setting is told by other images than it is scored on: choose with acclimate tune, "
    "then --choice FILE"
)
_UNSTATED = "the paper does not say which were tried; acclimate bench --set sweeps your own"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Options of a run, and after which of its epochs errors are read off.

    Attributes:
        options: of the recipe.
        epochs: empty for the end of the run.
    """

    options: Mapping[str, Value]
    epochs: tuple[int, ...] = ()


def settings_of(
    cell: Cell, *, choices: Choices, longest: Longest | None = None
) -> tuple[Setting, ...] | Lack:
    """What a cell is run with, or why that is not known.

    What the cell says comes first, then what was chosen beforehand, which is not searched again;
    the rest are the paper's presets and the library's defaults, which a run finds by itself.

    >>> from acclimate.paper.tables import find_table
    >>> settings = settings_of(find_table("tbl:batchsize").cells[0], choices=Choices())
    >>> dict(settings[0].options), settings[0].epochs
    ({'batch_size': 16, 'optimizer.lr': 0.000125, 'epochs': 6}, (1, 2, 3, 4, 5, 6))
    """
    options: dict[str, Value] = {**chosen_for(cell, choices), **cell.options}
    if cell.epochs is not None:
        run = (longest or {}).get(_family(cell))
        # All of a shared run are read off alike, its last epoch too: the error after an epoch is
        # with batch statistics, that of the model handed back with those of all images.
        read = () if run is None else (cell.epochs,)
        run = cell.epochs if run is None else run
        return (Setting(options={**options, "epochs": run}, epochs=read),)
    search = {name: tried for name, tried in cell.search.items() if name not in options}
    if not search:
        return (Setting(options=options),)
    if not all(search.values()):
        return Lack(kind="unstated", what=", ".join(search), how=_UNSTATED)
    if not _by_its_own_score(cell):
        return Lack(kind="tune", what="needs acclimate tune", how=_TUNE)
    grid = {name: tried for name, tried in search.items() if name != "epochs"}
    epochs = tuple(int(number) for number in search.get("epochs", ()))
    last = {"epochs": max(epochs)} if epochs else {}
    return tuple(
        Setting(options={**options, **dict(zip(grid, values, strict=True)), **last}, epochs=epochs)
        for values in product(*grid.values())
    )


def longest_runs(cells: Iterable[Cell]) -> dict[Hashable, int]:
    """The most epochs of cells that differ in nothing else: one run has the errors of all."""
    epochs: dict[Hashable, set[int]] = {}
    for cell in cells:
        if cell.epochs is not None and cell.metric in ("error", "mCE", "mDE"):
            epochs.setdefault(_family(cell), set()).add(cell.epochs)
    return {family: max(found) for family, found in epochs.items() if len(found) > 1}


def _by_its_own_score(cell: Cell) -> bool:
    """Whether the best is told by what it is scored on, which takes no further images."""
    return cell.chosen_on is not None and cell.chosen_on in (cell.shift, cell.split, ON_OTHERS)


def _family(cell: Cell) -> Hashable:
    options = tuple(sorted(cell.options.items()))
    what = (cell.model, cell.weights, cell.dataset, cell.split, cell.recipe, cell.seeds, options)
    # An error after an epoch can be read off; other metrics are known at the end alone.
    return (*what, cell.metric in ("error", "mCE", "mDE"))


_AFTER_EPOCH = (
    "errors after an epoch are with batch statistics; the model handed back, which other tables "
    "score, has statistics of all images"
)


def notes_of(cell: Cell, place: Place, settings: Sequence[Setting], choices: Choices) -> list[str]:
    """Whose network it is, where its images and its hyper-parameters come from."""
    return [*_network(cell), *_images(cell, place), *_rates(cell, settings, choices)]


def _network(cell: Cell) -> list[str]:
    own = checkpoints().get(str(cell.model).removeprefix("acclimate:"))
    if own is None:
        return []
    clean = f"{own.error:.1f} % error on {own.error_on}"
    return [f"the network is this package's own ({clean}), not the paper's"]


def _images(cell: Cell, place: Place) -> list[str]:
    if place.preset is None:
        return []
    frost = "; frost has textures of our own" if cell.shift in ("test", "frost") else ""
    return [f"{cell.dataset} is made on the way from {place.dataset}{frost}"]


def _rates(cell: Cell, settings: Sequence[Setting], choices: Choices) -> list[str]:
    if cell.recipe in (None, UNADAPTED):
        return []
    recipe = get_recipe(str(cell.recipe))
    if not recipe.learns:
        return []
    notes = []
    chosen = chosen_for(cell, choices)
    tried = sum(max(1, len(setting.epochs)) for setting in settings) if cell.search else 1
    if tried > 1:
        on_others = f"chosen on {ON_OTHERS}: best of {tried} settings there"
        oracle = f"selection=oracle: best of {tried} settings by the labels it is scored on"
        notes.append(on_others if cell.chosen_on == ON_OTHERS else oracle)
    if cell.search and settings[0].epochs:
        notes.append(_AFTER_EPOCH)
    if chosen:
        marks = f" ({'; '.join(choices.marks)})" if choices.marks else ""
        notes.append(f"options of --choice{marks}")
    elif tried == 1 and "optimizer.lr" not in settings[0].options and recipe.optimizer.lr is None:
        preset = find_preset(recipe.name, model_name=str(cell.model))
        whose = "the paper's preset" if preset else "the library's defaults; the paper prints none"
        notes.append(f"learning rate and epochs: {whose}")
    elif tried == 1 and "optimizer.lr" not in settings[0].options:
        notes.append("learning rate: the recipe's own; the paper prints none")
    if settings[0].epochs and not cell.search:
        last = settings[0].options["epochs"]
        notes += [f"read off after epoch {settings[0].epochs[0]} of a run of {last}", _AFTER_EPOCH]
    return notes


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What is left out of every measurement.

    Attributes:
        images: only so many of each shift; None is all.
        severities: only these, where the paper has the mean of five.
        shifts: only these corruptions or domains; none named is all.
        incomplete: data sets with gaps are taken as they are.

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
        said = []
        if self.images is not None:
            said.append(f"{self.images:,} images a shift")
        if self.severities != SEVERITIES:
            many = "severities" if len(self.severities) > 1 else "severity"
            said.append(f"{many} {', '.join(map(str, self.severities))} only")
        if self.shifts:
            said.append(f"{', '.join(self.shifts)} only")
        if self.incomplete:
            said.append("data sets with gaps allowed")
        return ", ".join(said)

    def severities_of(self, asked: int | None) -> tuple[int, ...]:
        """Those of a cell that are run; a cell without one means all five."""
        return tuple(s for s in self.severities if asked in (None, s))

    def has(self, shift: str | None) -> bool:
        """Whether a corruption or domain is run; images without a shift always are."""
        return shift is None or not self.shifts or plain_shift(shift) in self.shifts

    def to_dict(self) -> dict[str, Any] | None:
        """Plain values, for JSON; None where nothing is left out."""
        return {**vars(self), "words": self.words} if self.small else None

    @classmethod
    def of(
        cls,
        *,
        images: int | None = None,
        severities: Sequence[int] | None = None,
        shifts: Sequence[str] = (),
        incomplete: bool = False,
    ) -> Scope:
        """From the words of the command line, where None means all."""
        return cls(
            images=images,
            severities=SEVERITIES if severities is None else tuple(severities),
            shifts=tuple(shifts),
            incomplete=incomplete,
        )


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

    >>> from acclimate.paper.tables import find_table
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


def find_tables(name: str) -> list[Table]:
    """The tables and figures that a name or a wildcard pattern asks for, in the paper's order.

    >>> [table.label for table in find_tables("table-2")]
    ['tbl:table-2']
    >>> [table.label for table in find_tables("fig:2p*")]
    ['fig:2p-momentum', 'fig:2p-standard', 'fig:2p-weight']
    """
    every = tables()
    exact = [table for table in every if name in (table.label, *table.aliases)]
    found = exact or [table for table in every if _fits(table, name)]
    if not found:
        known = [table.label for table in every]
        bare = {_bare(label): label for label in known}
        # A typo in a name without prefix is nearer to the labels without theirs.
        raise unknown_name("table of the paper", name, known if ":" in name else bare)
    return found


def only_cells(
    tables: Sequence[Table], *, rows: Sequence[str] = (), columns: Sequence[str] = ()
) -> list[Table]:
    """Tables with only the cells whose row and column match one of the patterns; none means all.

    >>> [cell.column for cell in only_cells(find_tables("groupnorm"), rows=["*GN"])[0].cells]
    ['parameters', 'w/o adapt', 'RPL', 'ENT']
    """
    if not rows and not columns:
        return list(tables)
    found = [
        replace(
            table,
            cells=tuple(
                cell for cell in table.cells if _any(cell.row, rows) and _any(cell.column, columns)
            ),
        )
        for table in tables
    ]
    if not any(table.cells for table in found):
        for what, patterns in (("row", rows), ("column", columns)):
            known = dict.fromkeys(getattr(cell, what) for t in tables for cell in t.cells)
            if not any(_any(name, patterns) for name in known):
                raise AcclimateError(
                    f"no {what} is called {' or '.join(patterns)}; there are: {'; '.join(known)}"
                )
        raise AcclimateError("no cell has such a row and such a column")
    return [table for table in found if table.cells]


def _any(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _fits(table: Table, pattern: str) -> bool:
    names = (table.label, *table.aliases)
    return any(fnmatchcase(form, pattern) for name in names for form in (name, _bare(name)))


def _bare(label: str) -> str:
    return label.rpartition(":")[2]
