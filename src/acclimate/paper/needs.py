"""What a cell needs to be measured (images, weights, settings), and what of it is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from typing import Literal, TypeAlias

from acclimate.bench.available import AvailableData
from acclimate.bench.job import Job
from acclimate.bench.plan import MADE_FROM, split_of
from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError
from acclimate.models.paper import find_record
from acclimate.paper.tables import Cell, Table, tables
from acclimate.text import user_path

__all__ = [
    "FROST", "Available", "Lack", "Place", "clean_lack", "fill_path", "find_place", "weights_lack",
    "weights_note",
]  # fmt: skip

Kind: TypeAlias = Literal["data", "weights", "tune", "unstated", "predictions", "scope", "others"]


@dataclass(frozen=True, kw_only=True)
class Lack:
    """One thing that keeps a cell from being measured, and how to get it, in a line."""

    kind: Kind
    what: str
    how: str

    def __str__(self) -> str:
        return f"{self.what}: {self.how}"


FROST = Lack(
    kind="data",
    what="photographs of frost",
    how="pip install imagecorruptions brings them; textures of our own stand in for them in means "
    "alone, and have a column of their own, frost-procedural",
)


@dataclass(frozen=True, kw_only=True)
class Available(AvailableData):
    """Roots by data set, and weights files by model or by row of a table.

    Attributes:
        weights: a file for a model, or for rows by a pattern of their names: several rows have
            one model with weights of their own. ``{shift}`` and ``{severity}`` in the path are
            filled in, where a model was trained for each shift.

    >>> Available(roots={"cifar10": "/nowhere"}).check([])
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected cifar10 in /nowhere, but nothing is there;
    check --root cifar10=DIR
    """

    weights: Mapping[str, str] = field(default_factory=dict)

    def check(self, asked: Sequence[Table]) -> None:
        """Refuse what cannot be meant: an unknown data set, a path where nothing is."""
        for name, root in self.roots.items():
            find_dataset(name)
            if not user_path(root).exists():
                raise AcclimateError(
                    f"expected {name} in {root}, but nothing is there; check --root {name}=DIR"
                )
        cells = [cell for table in asked for cell in table.to_run if cell.model]
        for key, path in self.weights.items():
            varies = "{shift}" in path or "{severity}" in path
            if not varies and not user_path(path).is_file():
                raise AcclimateError(f"no weights file {path}; check --weights {key}=FILE")
            fit = [cell for cell in cells if _rank(key, cell) is not None]
            if cells and not fit:
                known = dict.fromkeys(str(cell.model) for cell in cells)
                raise AcclimateError(
                    f"--weights {key}=...: no model and no row of what is asked for is called "
                    f"{key!r}; models: {', '.join(known)}"
                )
            meant = {(cell.model, cell.weights) for cell in fit}
            if len(meant) > 1:
                rows = dict.fromkeys(cell.row for cell in fit)
                raise AcclimateError(
                    f"--weights {key}=... is meant for {len(meant)} different weights; say for "
                    f"which row, with wildcards if you like: {'; '.join(rows)}"
                )

    def images_of(self, job: Job) -> int | None:
        """How many images a job's shift has; those made on the fly are as many as the clean."""
        if job.dataset not in self.roots:
            return None
        shift = None if job.preset else job.corruption
        return self.count(job.dataset, split=job.split, shift=shift)

    def file(self, cell: Cell) -> str | None:
        """The weights file for a cell: that of its row rather than that of its model."""
        ranked = [(rank, key) for key in self.weights if (rank := _rank(key, cell)) is not None]
        return self.weights[min(ranked)[1]] if ranked else None


def _rank(key: str, cell: Cell) -> int | None:
    """How well a key of --weights fits a cell, 0 best; None where it does not."""
    if key in _rows():  # a name in full, though it has a star in it: "MNIST→SVHN, MT+CT*"
        return 0 if key == cell.row else None
    if fnmatchcase(cell.row, key) or fnmatchcase(cell.weights or "", key):
        return 1
    return 2 if fnmatchcase(cell.model or "", key) else None


@cache
def _rows() -> frozenset[str]:
    return frozenset(cell.row for table in tables() for cell in table.cells)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the images of a cell come from; with a preset they are corrupted on the fly."""

    dataset: str
    preset: str | None = None
    split: str | None = None

    @property
    def prefix(self) -> str:
        """What stands before the name of a shift."""
        return "" if self.preset is None else f"{self.preset}/"


def find_place(
    cell: Cell, available: Available, shifts: tuple[str, ...], severities: tuple[int, ...]
) -> Place | Lack:
    """Where a cell's images are found: as published, else made from the clean data set."""
    assert cell.dataset is not None
    split = split_of(cell.dataset, cell.split)
    problem = available.problem(cell.dataset, split=split, shifts=shifts, severities=severities)
    if problem is None:
        return Place(dataset=cell.dataset, split=split)
    clean, preset = MADE_FROM.get(cell.dataset, (None, None))
    if clean is not None:
        instead = available.problem(clean)
        if instead is None:
            return Place(dataset=clean, preset=preset)
        if clean in available.roots and cell.dataset not in available.roots:
            return Lack(kind="data", what=clean, how=instead)
    return _data_lack(cell.dataset, problem, available, clean=clean)


def clean_lack(cell: Cell, available: Available) -> Lack | None:
    """Forgetting is measured on another data set, which has to be there as well."""
    if cell.scored_on is None or (problem := available.problem(cell.scored_on)) is None:
        return None
    return _data_lack(cell.scored_on, problem, available)


def _data_lack(
    dataset: str, problem: str, available: Available, *, clean: str | None = None
) -> Lack:
    if dataset in available.roots:
        return Lack(kind="data", what=dataset, how=problem)
    record = find_dataset(dataset)
    how = f"{record.get} ({record.size}), then --root {dataset}=DIR"
    if clean is not None:
        how += f"; or --root {clean}=DIR alone, whose corruptions are then made on the fly"
    return Lack(kind="data", what=dataset, how=how)


def weights_lack(
    cell: Cell, file: str | None, shifts: tuple[str, ...], severities: tuple[int, ...]
) -> Lack | None:
    """What is missing to fill a cell's model; None where it is filled, or a library fetches it."""
    model, weights = str(cell.model), cell.weights or ""
    for_each_shift = "SHIFT" in weights
    how = None
    if file is not None and for_each_shift and "{shift}" not in file:
        how = f"of a model for each shift: put {{shift}} into the path, got {file}"
    elif file is not None:
        parts = product(shifts or (None,), severities or (None,))
        paths = (fill_path(file, shift=shift, severity=severity) for shift, severity in parts)
        absent = next((path for path in paths if not user_path(path).is_file()), None)
        how = None if absent is None else f"no file {absent}"
    elif weights:
        made = weights.startswith("acclimate ")
        get = f"make them with {weights} --model {model}" if made else f"get {weights}"
        in_path = "; FILE has {shift} in it" if for_each_shift else ""
        how = f"{get}, then --weights '{cell.row}=FILE'{in_path}"
    elif model.startswith("paper:") and (record := find_record(model)).weights == "file":
        source = record.files[0] if record.files else record.page
        how = f"get {source}, then --weights {model}=FILE"
    return None if how is None else Lack(kind="weights", what=model, how=how)


def weights_note(cell: Cell, file: str | None) -> str | None:
    """A note where a library fetches the weights when the cell is run."""
    model = str(cell.model)
    if file is not None or not model.startswith("paper:"):
        return None
    return f"{find_record(model).weights} fetches the weights, or --weights {model}=FILE"


def fill_path(path: str, *, shift: str | None, severity: int | None) -> str:
    """A path of a model for each shift, for one of them.

    >>> fill_path("nets/{shift}-{severity}.pt", shift="fog", severity=3)
    'nets/fog-3.pt'
    """
    return path.replace("{shift}", shift or "").replace("{severity}", str(severity or ""))
