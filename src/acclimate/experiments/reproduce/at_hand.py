"""What the user has: where data sets lie, and which weights files go with which rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from pathlib import Path

from acclimate.data.benchmarks import find_dataset, missing_parts
from acclimate.data.benchmarks.registry import check_dataset, open_dataset
from acclimate.data.corruptions import SEVERITIES
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.experiments.paper import Cell, Table, tables

__all__ = ["PLACEHOLDERS", "AtHand", "filled", "lying_in"]

_NAMED = 3  # how many missing parts are named before they are only counted
PLACEHOLDERS = ("{shift}", "{severity}")


@dataclass(frozen=True, kw_only=True)
class AtHand:
    """Roots by data set, and weights files by model or by row of a table.

    Attributes:
        roots: where each data set lies.
        weights: a file for a model, or for rows by a pattern of their names: several rows have
            one model with weights of their own. ``{shift}`` and ``{severity}`` in the path are
            filled in, where a model was trained for each shift.
        incomplete: data sets with gaps are taken as they are.

    >>> AtHand(roots={"cifar10": "/nowhere"}).check([])
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected cifar10 in /nowhere, but nothing is there;
    check --root cifar10=DIR
    """

    roots: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    incomplete: bool = False
    _seen: dict[tuple[object, ...], str | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

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

    def problem(
        self,
        dataset: str,
        *,
        split: str | None = None,
        shifts: Sequence[str] = (),
        severities: Sequence[int] = (),
    ) -> str | None:
        """Why images cannot be read, in words; None where they can, as far as a glance tells."""
        if dataset not in self.roots:
            return "no root"
        key = (dataset, split, tuple(shifts), tuple(severities))
        if key not in self._seen:
            root = Path(self.roots[dataset]).expanduser()
            if shifts:
                found = _gone(dataset, root, shifts, severities)
            else:
                found = self._unreadable(dataset, root, split)
            self._seen[key] = found
        return self._seen[key]

    def nothing_of(self, dataset: str, *, split: str | None = None) -> str | None:
        """Why nothing of a data set can be read; None where some of it can."""
        shifts = find_dataset(dataset).shifts
        if not shifts:
            return self.problem(dataset, split=split)
        found: str | None = None
        for shift, severity in product(shifts, SEVERITIES):
            found = self.problem(dataset, shifts=(shift,), severities=(severity,))
            if found is None:
                break
        return found

    def _unreadable(self, dataset: str, root: Path, split: str | None) -> str | None:
        """Data sets without shifts are opened: arrays are quickly read, folders only listed."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AcclimateWarning)
                if find_dataset(dataset).check is not None:
                    check_dataset(dataset, root, split=split, incomplete=self.incomplete)
                else:
                    open_dataset(
                        dataset,
                        root,
                        split=split,
                        cache=0,
                        progress=False,
                        incomplete=self.incomplete,
                    )
        except AcclimateError as error:
            return str(error).splitlines()[0]
        return None


def lying_in(root: str, names: Iterable[str], *, incomplete: bool = False) -> dict[str, str]:
    """The data sets, of some names, of which something lies in a folder, and that folder."""
    hand = AtHand(roots=dict.fromkeys(names, root), incomplete=incomplete)
    return {name: root for name in hand.roots if hand.nothing_of(name) is None}


def _gone(dataset: str, root: Path, shifts: Sequence[str], severities: Sequence[int]) -> str | None:
    """The parts of a data set of shifts that are asked for and not there."""
    record = find_dataset(dataset)
    standing = {place: name for name, place in record.stand_ins.items()}
    gone = []
    for part in missing_parts(dataset, root):
        name, _, severity = part.removesuffix(".npy").partition("/")
        if name in record.shifts and name not in shifts:
            continue
        if severity.isdecimal() and int(severity) not in severities:
            continue
        ours = standing.get(name)
        if ours and ((root / ours).is_dir() or (root / f"{ours}.npy").is_file()):
            continue
        gone.append(part)
    if not gone:
        return None
    named = ", ".join(gone[:_NAMED]) + (", …" if len(gone) > _NAMED else "")
    return f"{len(gone)} parts are not in {root}: {named}"


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
