"""What a cell needs, and what of it is not there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path
from typing import Literal, TypeAlias

import torch

from acclimate.bench.available import DataAtHand
from acclimate.bench.job import Job
from acclimate.bench.plan import MADE_FROM, split_of
from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError
from acclimate.models import load
from acclimate.models.device import choose_device
from acclimate.models.paper import find_record
from acclimate.paper.tables import Cell, Table, tables

__all__ = [
    "PLACEHOLDERS",
    "AtHand",
    "Lack",
    "Place",
    "filled",
    "find_place",
    "lacking_weights",
    "seconds_an_image",
    "to_fetch",
]

PLACEHOLDERS = ("{shift}", "{severity}")


@dataclass(frozen=True, kw_only=True)
class AtHand(DataAtHand):
    """Roots by data set, and weights files by model or by row of a table.

    Attributes:
        weights: a file for a model, or for rows by a pattern of their names: several rows have
            one model with weights of their own. ``{shift}`` and ``{severity}`` in the path are
            filled in, where a model was trained for each shift.

    >>> AtHand(roots={"cifar10": "/nowhere"}).check([])
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected cifar10 in /nowhere, but nothing is there;
    check --root cifar10=DIR
    """

    weights: Mapping[str, str] = field(default_factory=dict)

    def check(self, asked: Sequence[Table]) -> None:
        """Refuse what cannot be meant: an unknown data set, a path where nothing is."""
        for name, root in self.roots.items():
            find_dataset(name)
            if not Path(root).expanduser().exists():
                raise AcclimateError(
                    f"expected {name} in {root}, but nothing is there; check --root {name}=DIR"
                )
        cells = [cell for table in asked for cell in table.to_run if cell.model]
        for key, path in self.weights.items():
            self._check_weights(key, path, cells)

    def _check_weights(self, key: str, path: str, cells: Sequence[Cell]) -> None:
        if not _varies(path) and not Path(path).expanduser().is_file():
            raise AcclimateError(f"no weights file {path}; check --weights {key}=FILE")
        fit = [cell for cell in cells if _rank(key, cell) is not None]
        if cells and not fit:
            known = dict.fromkeys(str(cell.model) for cell in cells)
            raise AcclimateError(
                f"--weights {key}=...: no model and no row of what is asked for is called "
                f"{key!r}; models: {', '.join(known)}"
            )
        meant = dict.fromkeys((cell.model, cell.weights) for cell in fit)
        if len(meant) > 1:
            rows = dict.fromkeys(cell.row for cell in fit)
            raise AcclimateError(
                f"--weights {key}=... is meant for {len(meant)} different weights; say for which "
                f"row, with wildcards if you like: {'; '.join(rows)}"
            )

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


def filled(path: str, *, shift: str | None, severity: int | None) -> str:
    """A path of a model for each shift, for one of them.

    >>> filled("nets/{shift}-{severity}.pt", shift="fog", severity=3)
    'nets/fog-3.pt'
    """
    return path.replace("{shift}", shift or "").replace("{severity}", str(severity or ""))


def _varies(path: str) -> bool:
    return any(word in path for word in PLACEHOLDERS)


Kind: TypeAlias = Literal["data", "weights", "tune", "unstated", "predictions", "scope", "others"]

_OF_EACH_SHIFT = "SHIFT"  # in ``Cell.weights``: a model is trained for each


@dataclass(frozen=True, kw_only=True)
class Lack:
    """One thing that keeps a cell from being measured.

    Attributes:
        kind: what sort of thing.
        what: its name.
        how: how to get it, in a line.
    """

    kind: Kind
    what: str
    how: str

    def __str__(self) -> str:
        return f"{self.what}: {self.how}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the images of a cell come from; with a preset they are corrupted on the way."""

    dataset: str
    preset: str | None = None
    split: str | None = None

    @property
    def prefix(self) -> str:
        """What stands before the name of a shift."""
        return "" if self.preset is None else f"{self.preset}/"


def find_place(
    cell: Cell, hand: AtHand, shifts: tuple[str, ...], severities: tuple[int, ...]
) -> Place | Lack:
    """Where a cell's images are to be had: as published, else made from the clean data set."""
    assert cell.dataset is not None
    split = split_of(cell.dataset, cell.split)
    problem = hand.problem(cell.dataset, split=split, shifts=shifts, severities=severities)
    if problem is None:
        return Place(dataset=cell.dataset, split=split)
    clean, preset = MADE_FROM.get(cell.dataset, (None, None))
    if clean is not None:
        instead = hand.problem(clean)
        if instead is None:
            return Place(dataset=clean, preset=preset)
        if clean in hand.roots and cell.dataset not in hand.roots:
            return Lack(kind="data", what=clean, how=instead)
    if cell.dataset in hand.roots:
        return Lack(kind="data", what=cell.dataset, how=problem)
    return Lack(kind="data", what=cell.dataset, how=_how_to_get(cell.dataset, clean))


def _how_to_get(dataset: str, clean: str | None) -> str:
    record = find_dataset(dataset)
    get = f"{record.get} ({record.size}), then --root {dataset}=DIR"
    if clean is None:
        return get
    return f"{get}; or --root {clean}=DIR alone, whose corruptions are then made on the way"


def lacking_weights(
    cell: Cell, file: str | None, shifts: tuple[str, ...], severities: tuple[int, ...]
) -> Lack | None:
    """What is missing to fill a cell's model; None where it is filled, or a library fetches it."""
    model = str(cell.model)
    each = _OF_EACH_SHIFT in (cell.weights or "")
    if file is not None:
        if each and PLACEHOLDERS[0] not in file:
            how = f"of a model for each shift: put {{shift}} into the path, got {file}"
            return Lack(kind="weights", what=model, how=how)
        absent = [
            path
            for path in _each(file, shifts, severities)
            if not Path(path).expanduser().is_file()
        ]
        if absent:
            return Lack(kind="weights", what=model, how=f"no file {absent[0]}")
        return None
    if cell.weights is not None:
        give = f"--weights '{cell.row}=FILE'"
        made = cell.weights.startswith("acclimate ")
        get = f"make them with {cell.weights} --model {model}" if made else f"get {cell.weights}"
        each_word = "; FILE has {shift} in it" if each else ""
        return Lack(kind="weights", what=model, how=f"{get}, then {give}{each_word}")
    if model.startswith("paper:") and (record := find_record(model)).weights == "file":
        source = record.files[0] if record.files else record.page
        return Lack(kind="weights", what=model, how=f"get {source}, then --weights {model}=FILE")
    return None


def to_fetch(cell: Cell, file: str | None) -> str | None:
    """A note where a library fetches the weights when the cell is run."""
    model = str(cell.model)
    if file is not None or not model.startswith("paper:"):
        return None
    library = find_record(model).weights
    return f"{library} fetches the weights, or --weights {model}=FILE"


def _each(file: str, shifts: tuple[str, ...], severities: tuple[int, ...]) -> list[str]:
    """The files of a path, each once."""
    return list(
        dict.fromkeys(
            filled(file, shift=shift, severity=severity)
            for shift in shifts or (None,)
            for severity in severities or (None,)
        )
    )


_IMAGES = 8
_TIMES = 2


def seconds_an_image(job: Job, *, device: str | None = None) -> float | None:
    """Seconds for one image forward through a job's model, with whatever weights.

    None where the model would have to be fetched first.

    >>> seconds_an_image(Job(model="acclimate:digits", dataset="mnist", recipe="none")) > 0
    True
    >>> seconds_an_image(Job(model="paper:resnet50", dataset="imagenet", recipe="none")) is None
    True
    """
    if not job.model.startswith("acclimate:") and job.weights is None:
        return None
    try:
        loaded = load(job.model, weights=None if job.weights is None else job.weights.path)
    except AcclimateError:
        return None  # the job itself says why
    if loaded.preprocessing is None:
        return None
    where = choose_device(device)
    model = loaded.model.to(where)
    images = torch.zeros(_IMAGES, *loaded.preprocessing.shape, device=where)
    with torch.inference_mode():
        run = partial(_timed, model, images)
        run()  # the first one loads kernels
        return min(run() for _ in range(_TIMES)) / _IMAGES


def _timed(model: torch.nn.Module, images: torch.Tensor) -> float:
    began = time.perf_counter()
    model(images).sum().item()  # .item() waits for the device
    return time.perf_counter() - began
