"""Which data sets can be read in the folders that were named, without decoding an image."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks import find_dataset, missing_parts
from acclimate.data.benchmarks.registry import check_dataset, open_dataset
from acclimate.data.shift import SEVERITIES
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.text import user_path

__all__ = ["AvailableData", "datasets_in"]

_NAMED = 3  # how many missing parts are named before they are only counted


@dataclass(frozen=True, kw_only=True)
class AvailableData:
    """Roots by data set; no image is decoded, and nothing is looked for twice.

    Attributes:
        roots: the folder of each data set.
        incomplete: data sets with gaps are accepted.

    >>> AvailableData().problem("mnist")
    'no root'
    """

    roots: Mapping[str, str] = field(default_factory=dict)
    incomplete: bool = False
    _seen: dict[tuple[object, ...], str | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _counts: dict[tuple[object, ...], int | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _parts: dict[str, list[str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

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
            root = user_path(self.roots[dataset])
            if shifts:
                found = _gone(dataset, root, self._missing(dataset), shifts, severities)
            else:
                found = self._unreadable(dataset, root, split)
            self._seen[key] = found
        return self._seen[key]

    def count(self, dataset: str, *, split: str | None, shift: str | None = None) -> int | None:
        """How many images there are, or of a shift by its own name; None where none can be read."""
        severity = SEVERITIES[0] if find_dataset(dataset).severities else None
        key = (dataset, split, shift)
        if key not in self._counts:
            try:
                opened = self._open(dataset, split=split, shift=shift, severity=severity)
                self._counts[key] = len(opened)
            except AcclimateError:
                self._counts[key] = None
        return self._counts[key]

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
            if find_dataset(dataset).check is None:
                self._open(dataset, split=split)
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", AcclimateWarning)
                    check_dataset(dataset, root, split=split, incomplete=self.incomplete)
        except AcclimateError as error:
            return str(error).splitlines()[0]
        return None

    def _open(self, dataset: str, **which: Any) -> ImageSource:
        """Quietly, and without keeping an image."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AcclimateWarning)
            return open_dataset(
                dataset,
                user_path(self.roots[dataset]),
                cache=0,
                progress=False,
                incomplete=self.incomplete,
                **which,
            )

    def _missing(self, dataset: str) -> list[str]:
        """The parts that are not there, looked for once: ImageNet-C has 95."""
        if dataset not in self._parts:
            self._parts[dataset] = missing_parts(dataset, self.roots[dataset])
        return self._parts[dataset]


def datasets_in(root: str, names: Iterable[str], *, incomplete: bool = False) -> dict[str, str]:
    """The data sets, of some names, of which something is in a folder, and that folder."""
    available = AvailableData(roots=dict.fromkeys(names, root), incomplete=incomplete)
    return {name: root for name in available.roots if available.nothing_of(name) is None}


def _gone(
    dataset: str,
    root: Path,
    missing: Sequence[str],
    shifts: Sequence[str],
    severities: Sequence[int],
) -> str | None:
    """The parts of a data set of shifts that are asked for and not there."""
    record = find_dataset(dataset)
    standing = {place: name for name, place in record.stand_ins.items()}
    gone = []
    for part in missing:
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
