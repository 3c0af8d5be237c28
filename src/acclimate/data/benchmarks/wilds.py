"""Camelyon17, RxRx1 and FMoW of the WILDS benchmark, read from their published layout."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from acclimate.data.base import ImageSource, digest
from acclimate.data.benchmarks.array_sets import check_count, plain_scaling
from acclimate.data.benchmarks.class_folders import check_present, present_source
from acclimate.data.benchmarks.facts import register
from acclimate.data.benchmarks.registry import Request
from acclimate.data.preprocessing import Preprocessing
from acclimate.errors import AcclimateError

__all__ = ["CAMELYON17_CLASSES", "FMOW_CLASSES"]

CAMELYON17_CLASSES = ("normal", "tumor")
FMOW_CLASSES = (
    "airport", "airport_hangar", "airport_terminal", "amusement_park", "aquaculture",
    "archaeological_site", "barn", "border_checkpoint", "burial_site", "car_dealership",
    "construction_site", "crop_field", "dam", "debris_or_rubble", "educational_institution",
    "electric_substation", "factory_or_powerplant", "fire_station", "flooded_road", "fountain",
    "gas_station", "golf_course", "ground_transportation_station", "helipad", "hospital",
    "impoverished_settlement", "interchange", "lake_or_pond", "lighthouse", "military_facility",
    "multi-unit_residential", "nuclear_powerplant", "office_building", "oil_or_gas_facility",
    "park", "parking_lot_or_garage", "place_of_worship", "police_station", "port", "prison",
    "race_track", "railway_bridge", "recreational_facility", "road_bridge", "runway",
    "shipyard", "shopping_mall", "single-unit_residential", "smokestack", "solar_farm",
    "space_facility", "stadium", "storage_tank", "surface_mine", "swimming_pool", "toll_booth",
    "tower", "tunnel_opening", "waste_disposal", "water_treatment_facility", "wind_farm", "zoo",
)  # fmt: skip
# 2015-06-01T10:20:30Z; only in universal time does the text's year decide the split.
_UNIVERSAL_TIME = re.compile(r"(\d{4})-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?")
_FMOW_CLASS = {name: index for index, name in enumerate(FMOW_CLASSES)}


@dataclass(frozen=True)
class _Row:
    """An image of a table: its file below the data set's folder, its class, its split."""

    file: str
    label: int
    split: str


def _read_camelyon17(path: Path) -> Iterator[_Row]:
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
        yield _Row(f"patches/{slide}/{name}", line.number("tumor", below=2), split)


def _read_rxrx1(path: Path) -> Iterator[_Row]:
    """Rows of RxRx1's metadata.csv: of the training experiments, site 2 is ``id_test``."""
    columns = ("experiment", "plate", "well", "site", "dataset", "sirna_id")
    for line in _lines(path, columns):
        split = line.one_of("dataset", "train", "val", "test")
        site = line.number("site", below=3)
        if split == "train" and site == 2:
            split = "id_test"
        folder = f"images/{line['experiment']}/Plate{line['plate']}"
        yield _Row(f"{folder}/{line['well']}_s{site}.png", line.number("sirna_id", 1139), split)


def _read_fmow(path: Path) -> Iterator[_Row]:
    """Rows of FMoW's rgb_metadata.csv, numbered as they come; sequestered ones are left out.

    Images of the table's ``val`` and ``test`` parts are ``id_val`` and ``id_test`` if taken
    before 2013, out of distribution from 2013 (``val``) and from 2016 (``test``), and in no
    official split in between. Training images count until the end of 2012.
    """
    for number, line in enumerate(_lines(path, ("split", "category", "timestamp"))):
        part = line.one_of("split", "train", "val", "test", "seq")
        if part == "seq":
            continue
        moment = _UNIVERSAL_TIME.fullmatch(line["timestamp"])
        if moment is None:
            line.reject("timestamp", "a moment like 2015-06-01T10:20:30Z")
        label = _FMOW_CLASS.get(line["category"])
        if label is None:
            line.reject("category", f"one of the {len(FMOW_CLASSES)} categories")
        year = int(moment[1])
        if year < 2013:
            split = part if part == "train" else f"id_{part}"
        elif (part == "val" and year < 2016) or (part == "test" and year >= 2016):
            split = part
        else:
            continue
        yield _Row(f"images/rgb_img_{number}.png", label, split)


class _Line(dict[str, str]):
    """The values of a line of a table, by column."""

    def __init__(self, values: Mapping[str, str], where: str) -> None:
        super().__init__(values)
        self.where = where

    def number(self, column: str, below: int) -> int:
        # Where a column had gaps once, whole numbers were written as 3.0.
        digits = self[column].removesuffix(".0")
        if not (digits.isascii() and digits.isdigit() and int(digits) < below):
            self.reject(column, f"a number from 0 to {below - 1}")
        return int(digits)

    def one_of(self, column: str, *names: str) -> str:
        if self[column] not in names:
            self.reject(column, f"{', '.join(names[:-1])} or {names[-1]}")
        return self[column]

    def reject(self, column: str, expected: str) -> NoReturn:
        raise AcclimateError(
            f"expected {expected} as {column} in {self.where}, got {self[column]!r:.60}"
        )


def _lines(path: Path, columns: tuple[str, ...]) -> Iterator[_Line]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames or ()
            missing = [name for name in columns if name not in header]
            if missing:
                raise AcclimateError(
                    f"expected the columns {', '.join(columns)} in {path}, got no "
                    f"{', '.join(missing)}"
                )
            for row in reader:
                # What is beyond the header lies under None; what is not there is None.
                beyond = row.pop(None, [])
                values = [*row.values(), *beyond]
                if None in values or len(values) != len(header):
                    raise AcclimateError(
                        f"expected {len(header)} values in line {reader.line_num} of {path}, got "
                        f"{len(values) - values.count(None)}; the file may be cut short"
                    )
                yield _Line(row, f"line {reader.line_num} of {path}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AcclimateError(f"cannot read {path}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class _Table:
    """One of the data sets: where it lists its images, and how many there are of each split."""

    folder: str
    read: Callable[[Path], Iterator[_Row]]
    class_names: tuple[str, ...]
    counts: Mapping[str, int]
    name: str = "metadata.csv"
    images: str = "images"

    def open(self, request: Request) -> ImageSource:
        """The images of the split that is asked for; model input where no scaling is known."""
        known = request.preprocessing is not None
        wanted = request if known else replace(request, preprocessing=plain_scaling(256))
        folder, rows = self._rows(request)
        files, labels = [row.file for row in rows], [row.label for row in rows]
        source = present_source(wanted, folder, files, labels, class_names=self.class_names)
        return source if known else _StandardizedSource(source)

    def check(self, request: Request) -> None:
        """Refuse what is not whole, without opening any image."""
        folder, rows = self._rows(request)
        check_present(request, folder, [row.file for row in rows])

    def missing(self, root: Path) -> list[str]:
        """What is not there."""
        folder = self._place(root)
        there = {
            self.name: (folder / self.name).is_file(),
            f"{self.images}/": (folder / self.images).is_dir(),
        }
        return [part for part, found in there.items() if not found]

    def register(self, name: str, *, side: int | None = None) -> None:
        """Make the data set known; without a side its images have no usual preprocessing."""
        register(
            name,
            open=self.open,
            splits=tuple(self.counts),
            preprocessing=None if side is None else Preprocessing(size=(side, side)),
            missing=self.missing,
            check=self.check,
        )

    def _rows(self, request: Request) -> tuple[Path, list[_Row]]:
        """The folder of the table, and its rows of the split that is asked for."""
        table = self._place(request.root) / self.name
        if not table.is_file():
            request.refuse(f"expected {self.name} of {request.dataset.name} in {request.root}")
        split = request.split or "test"
        rows = [row for row in self.read(table) if row.split == split]
        check_count(request, f"the split {split} of {table}", len(rows), self.counts[split])
        return table.parent, rows

    def _place(self, root: Path) -> Path:
        return root if (root / self.name).is_file() else root / self.folder


class _StandardizedSource(ImageSource):
    """Another source's uint8 images as model input, standardised one by one.

    The models of RxRx1 published with WILDS were fed images of which each channel was scaled by its
    own mean and deviation, which no fixed mean can express.
    """

    def __init__(self, inner: ImageSource) -> None:
        self._inner = inner
        super().__init__(**{**inner.facts(), "preprocessing": None})

    def read(self, indices: Tensor) -> Tensor:
        """The images at these indices, float32 N×C×H×W; one-valued channels only centred."""
        pixels = self._inner.read(indices).to(torch.float32) / 255
        std, mean = torch.std_mean(pixels, dim=(2, 3), keepdim=True)
        return (pixels - mean) / torch.where(std == 0, 1.0, std)

    def fingerprint(self) -> str:
        """The other source's digest, marked: the same images are another input here."""
        return digest([self._inner.fingerprint().encode(), b"standardized"])


# The number of images in each official split is that of Koh et al., 2021.
# Patches of lymph nodes: is there tumour tissue in the centre? ``val`` and ``test`` are hospitals
# that training has not seen; ``id_val`` is of its own three.
_Table(
    folder="camelyon17_v1.0",
    images="patches",
    read=_read_camelyon17,
    class_names=CAMELYON17_CLASSES,
    counts={"test": 85_054, "val": 34_904, "id_val": 33_560, "train": 302_436},
).register("camelyon17", side=96)
# Cells under a fluorescence microscope: which of 1,139 treatments did they get?
_Table(
    folder="rxrx1_v1.0",
    read=_read_rxrx1,
    class_names=tuple(f"siRNA {index}" for index in range(1139)),
    counts={"test": 34_432, "val": 9_854, "id_test": 40_612, "train": 40_612},
).register("rxrx1")
# Satellite images: which of 62 kinds of building or land use? ``val`` was taken from 2013, ``test``
# from 2016; training and ``id_`` splits are older.
_Table(
    folder="fmow_v1.1",
    name="rgb_metadata.csv",
    read=_read_fmow,
    class_names=FMOW_CLASSES,
    counts={"test": 22_108, "val": 19_915, "id_test": 11_327, "id_val": 11_483, "train": 76_863},
).register("fmow", side=224)
