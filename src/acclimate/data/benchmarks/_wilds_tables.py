"""The tables of the WILDS tasks: which picture is in which official split, and what it shows.

The rules are those of the WILDS benchmark's official splits (https://wilds.stanford.edu, Koh et
al., 2021). Anything in a table that they do not foresee is an error with its line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from acclimate.data.benchmarks._wilds_classes import FMOW_CLASSES
from acclimate.errors import AcclimateError

__all__ = ["Row", "read_camelyon17", "read_fmow", "read_rxrx1"]

# 2015-06-01T10:20:30Z; only in universal time does the text's year decide the split.
_UNIVERSAL_TIME = re.compile(r"(\d{4})-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?")
_FMOW_CLASS = {name: number for number, name in enumerate(FMOW_CLASSES)}


@dataclass(frozen=True)
class Row:
    """A picture of a table: its file below the data set's folder, its class, its split."""

    file: str
    label: int
    split: str


def read_camelyon17(path: Path) -> Iterator[Row]:
    """Rows of Camelyon17's metadata.csv: hospital 1 is ``val``, 2 is ``test``, others train."""
    columns = ("patient", "node", "x_coord", "y_coord", "tumor", "center", "split")
    for line in _lines(path, columns):
        center = line.number("center", below=5)
        if center in (1, 2):
            split = ("val", "test")[center - 1]
        else:
            split = ("train", "id_val")[line.number("split", below=2)]
        slide = f"patient_{line['patient']}_node_{line['node']}"
        name = f"patch_{slide}_x_{line['x_coord']}_y_{line['y_coord']}.png"
        yield Row(f"patches/{slide}/{name}", line.number("tumor", below=2), split)


def read_rxrx1(path: Path) -> Iterator[Row]:
    """Rows of RxRx1's metadata.csv: of the training experiments, site 2 is ``id_test``."""
    columns = ("experiment", "plate", "well", "site", "dataset", "sirna_id")
    for line in _lines(path, columns):
        split = line["dataset"]
        if split not in ("train", "val", "test"):
            line.reject("dataset", "train, val or test")
        site = line.number("site", below=3)
        if split == "train" and site == 2:
            split = "id_test"
        folder = f"images/{line['experiment']}/Plate{line['plate']}"
        yield Row(f"{folder}/{line['well']}_s{site}.png", line.number("sirna_id", 1139), split)


def read_fmow(path: Path) -> Iterator[Row]:
    """Rows of FMoW's rgb_metadata.csv, numbered as they come; sequestered ones are left out.

    Pictures of the table's ``val`` and ``test`` parts are ``id_val`` and ``id_test`` if taken
    before 2013, out of distribution from 2013 (``val``) and from 2016 (``test``), and in no
    official split otherwise. Training pictures count until the end of 2012.
    """
    for number, line in enumerate(_lines(path, ("split", "category", "timestamp"))):
        part = line["split"]
        if part == "seq":
            continue
        if part not in ("train", "val", "test"):
            line.reject("split", "train, val, test or seq")
        moment = _UNIVERSAL_TIME.fullmatch(line["timestamp"])
        if moment is None:
            line.reject("timestamp", "a moment like 2015-06-01T10:20:30Z")
        label = _FMOW_CLASS.get(line["category"])
        if label is None:
            line.reject("category", f"one of the {len(FMOW_CLASSES)} categories")
        split = _fmow_split(part, int(moment[1]))
        if split is not None:
            yield Row(f"images/rgb_img_{number}.png", label, split)


def _fmow_split(part: str, year: int) -> str | None:
    if year < 2013:
        return part if part == "train" else f"id_{part}"
    if part == "val" and year < 2016:
        return "val"
    return "test" if part == "test" and year >= 2016 else None


@dataclass(frozen=True)
class _Line:
    path: Path
    line: int
    values: dict[str, str]

    def __getitem__(self, column: str) -> str:
        return self.values[column]

    def number(self, column: str, below: int) -> int:
        text = self.values[column]
        # Where a column had gaps once, whole numbers were written as 3.0.
        digits = text.removesuffix(".0")
        if not (digits.isascii() and digits.isdigit() and int(digits) < below):
            self.reject(column, f"a number from 0 to {below - 1}")
        return int(digits)

    def reject(self, column: str, expected: str) -> NoReturn:
        raise AcclimateError(
            f"expected {expected} as {column} in line {self.line} of {self.path}, got "
            f"{self.values[column]!r:.60}"
        )


def _lines(path: Path, columns: tuple[str, ...]) -> Iterator[_Line]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            missing = [name for name in columns if name not in header]
            if missing:
                raise AcclimateError(
                    f"expected the columns {', '.join(columns)} in {path}, got no "
                    f"{', '.join(missing)}"
                )
            places = {name: header.index(name) for name in columns}
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise AcclimateError(
                        f"expected {len(header)} values in line {reader.line_num} of {path}, got "
                        f"{len(row)}; the file may be cut short"
                    )
                values = {name: row[place] for name, place in places.items()}
                yield _Line(path, reader.line_num, values)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AcclimateError(f"cannot read {path}: {error}") from error
