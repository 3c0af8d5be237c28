"""What the user has: where data sets lie, and which weights files go with which rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from acclimate.data.benchmarks import find_dataset
from acclimate.errors import AcclimateError
from acclimate.experiments.data_at_hand import DataAtHand
from acclimate.experiments.paper import Cell, Table, tables

__all__ = ["PLACEHOLDERS", "AtHand", "filled"]

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
