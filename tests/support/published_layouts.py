"""Small copies of WILDS, STL-10 and SVHN in the layouts in which they are published."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from acclimate.data.benchmarks.stl10 import STL10_CLASSES

RANDOM = np.random.default_rng(0)
STL10 = RANDOM.integers(0, 256, (10, 96, 96, 3), dtype=np.uint8)
SVHN = RANDOM.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
CAMELYON17 = [
    # patient, node, x, y, tumor, slide, center, split
    ("004", 4, 3328, 21792, 1, 0, 0, 0),
    ("004", 4, 3200, 22272, 0, 0, 0, 1),
    ("017", 2, 100, 200, 0, 11, 1, 1),
    ("042", 3, 300, 400, 1, 23, 2, 0),
    ("042", 3, 300, 500, 0, 23, 2, 0),
    ("099", 4, 10, 20, 0, 49, 4, 0),
]
RXRX1 = [
    # experiment, plate, well, site, dataset, sirna_id
    ("HEPG2-01", 1, "B02", 1, "train", 5),
    ("HEPG2-01", 1, "B02", 2, "train", 5),
    ("HEPG2-08", 2, "C03", 1, "val", 1138),
    ("HUVEC-17", 4, "O23", 1, "test", 0),
    ("HUVEC-17", 4, "O23", 2, "test", 1107),
]
FMOW = [
    # split, category, timestamp
    ("train", "airport", "2012-12-31T23:59:59Z"),
    ("train", "airport", "2013-01-01T00:00:00Z"),
    ("seq", "zoo", "2017-01-01T00:00:00Z"),
    ("val", "zoo", "2010-05-05T10:00:00Z"),
    ("val", "barn", "2013-05-05T10:00:00.000Z"),
    ("val", "barn", "2016-05-05T10:00:00Z"),
    ("test", "dam", "2002-05-05T10:00:00+00:00"),
    ("test", "dam", "2015-05-05T10:00:00Z"),
    ("test", "tower", "2016-01-01T00:00:00Z"),
    ("test", "zoo", "2017-01-01T00:00:00Z"),
]


def table(path: Path, columns: str, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        # pandas writes the row's number first, without a name for it.
        writer.writerow(["", *columns.split()])
        writer.writerows([number, *row] for number, row in enumerate(rows))


def write_image(path: Path, side: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RANDOM.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)


def write_camelyon17(root: Path, rows=CAMELYON17) -> None:
    columns = "patient node x_coord y_coord tumor slide center split"
    table(root / "metadata.csv", columns, rows)
    for patient, node, x, y, *_ in rows:
        slide = f"patient_{patient}_node_{node}"
        write_image(root / f"patches/{slide}/patch_{slide}_x_{x}_y_{y}.png", 96)


def write_rxrx1(root: Path, rows=RXRX1) -> None:
    table(root / "metadata.csv", "experiment plate well site dataset sirna_id", rows)
    for experiment, plate, well, site, *_ in rows:
        write_image(root / f"images/{experiment}/Plate{plate}/{well}_s{site}.png", 256)


def write_fmow(root: Path, rows=FMOW) -> None:
    table(root / "rgb_metadata.csv", "split category timestamp", rows)
    for number, (split, *_) in enumerate(rows):
        if split != "seq":
            write_image(root / f"images/rgb_img_{number}.png", 224)


def write_stl10(root: Path, split: str = "test", labels=range(1, 11), images=STL10) -> None:
    root.mkdir(parents=True, exist_ok=True)
    # Colour planes one after another, each column by column.
    (root / f"{split}_X.bin").write_bytes(images.transpose(0, 3, 2, 1).tobytes())
    if split != "unlabeled":
        (root / f"{split}_y.bin").write_bytes(bytes(labels))
    (root / "class_names.txt").write_text("\n".join(STL10_CLASSES) + "\n")


def write_svhn(path: Path, labels=(1, 9, 10, 5), images=SVHN) -> None:
    savemat(path, {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, np.uint8)[:, None]})
