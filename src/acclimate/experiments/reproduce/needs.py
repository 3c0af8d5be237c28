"""What a cell needs, and what of it is not there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from acclimate.data.benchmarks import find_dataset
from acclimate.experiments._datasets import MADE_FROM, split_of
from acclimate.experiments.paper import Cell
from acclimate.experiments.reproduce.at_hand import PLACEHOLDERS, AtHand, filled
from acclimate.models.paper import find_record

__all__ = ["Lack", "Place", "find_place", "lacking_weights", "to_fetch"]

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
