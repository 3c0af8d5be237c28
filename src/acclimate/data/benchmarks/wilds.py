"""Camelyon17, RxRx1 and FMoW of the WILDS benchmark, read from their published layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks._array_sets import check_count
from acclimate.data.benchmarks._file_lists import check_listed, listed_source
from acclimate.data.benchmarks._standardized import StandardizedSource
from acclimate.data.benchmarks._wilds_classes import FMOW_CLASSES
from acclimate.data.benchmarks._wilds_tables import Row, read_camelyon17, read_fmow, read_rxrx1
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.data.preprocessing import Preprocessing

__all__ = ["CAMELYON17_CLASSES", "FMOW_CLASSES", "open_camelyon17", "open_fmow", "open_rxrx1"]

CAMELYON17_CLASSES = ("normal", "tumor")
# Scaled to 0..1 only; how pictures are standardised is not for this record to say.
_RXRX1_PIXELS = Preprocessing(size=(256, 256), mean=(0.0,) * 3, std=(1.0,) * 3)


def open_camelyon17(request: Request) -> ImageSource:
    """Patches of lymph nodes, 96×96: is there tumour tissue in the centre?

    ``val`` and ``test`` are hospitals that training has not seen; ``id_val`` is of its own three.
    """
    return _open(request, _CAMELYON17, CAMELYON17_CLASSES)


def open_rxrx1(request: Request) -> ImageSource:
    """Cells under a fluorescence microscope, 256×256: which of 1,139 treatments did they get?

    The models published with WILDS were fed pictures standardised one by one, each channel by its
    own mean and deviation, which no fixed mean can express. So that is done unless the request has
    a preprocessing, and the source then hands out model input.
    """
    names = tuple(f"siRNA {number}" for number in range(1139))
    own = request.preprocessing is None
    source = _open(request, _RXRX1, names, preprocessing=_RXRX1_PIXELS if own else None)
    return StandardizedSource(source) if own else source


def open_fmow(request: Request) -> ImageSource:
    """Satellite pictures, 224×224: which of 62 kinds of building or land use?

    ``val`` was taken from 2013, ``test`` from 2016; training and ``id_`` splits are older.
    """
    return _open(request, _FMOW, FMOW_CLASSES)


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Where one of them lists its pictures, and how many there are of each split."""

    folder: str
    name: str
    pictures: str
    read: Callable[[Path], Iterator[Row]]
    counts: Mapping[str, int]

    def rows(self, request: Request) -> tuple[Path, list[Row]]:
        """The folder of the table, and its rows of the split that is asked for."""
        table = self._place(request.root) / self.name
        if not table.is_file():
            request.refuse(f"expected {self.name} of {request.dataset.name} in {request.root}")
        split = request.split or "test"
        rows = [row for row in self.read(table) if row.split == split]
        check_count(request, f"the split {split} of {table}", len(rows), self.counts[split])
        return table.parent, rows

    def check(self, request: Request) -> None:
        """Refuse what is not whole, without a look into any picture."""
        folder, rows = self.rows(request)
        check_listed(request, folder, [row.file for row in rows])

    def missing(self, root: Path) -> list[str]:
        """What is not there, at a glance."""
        folder = self._place(root)
        gone = [] if (folder / self.name).is_file() else [self.name]
        return gone + ([] if (folder / self.pictures).is_dir() else [f"{self.pictures}/"])

    def _place(self, root: Path) -> Path:
        return root if (root / self.name).is_file() else root / self.folder


def _open(
    request: Request,
    table: _Table,
    class_names: tuple[str, ...],
    *,
    preprocessing: Preprocessing | None = None,
) -> ImageSource:
    folder, rows = table.rows(request)
    return listed_source(
        request,
        folder,
        [row.file for row in rows],
        [row.label for row in rows],
        class_names=class_names,
        preprocessing=preprocessing,
    )


# The number of pictures in each official split is that of Koh et al., 2021.
_CAMELYON17 = _Table(
    folder="camelyon17_v1.0", name="metadata.csv", pictures="patches", read=read_camelyon17,
    counts={"test": 85_054, "val": 34_904, "id_val": 33_560, "train": 302_436},
)  # fmt: skip
_RXRX1 = _Table(
    folder="rxrx1_v1.0", name="metadata.csv", pictures="images", read=read_rxrx1,
    counts={"test": 34_432, "val": 9_854, "id_test": 40_612, "train": 40_612},
)  # fmt: skip
_FMOW = _Table(
    folder="fmow_v1.1", name="rgb_metadata.csv", pictures="images", read=read_fmow,
    counts={"test": 22_108, "val": 19_915, "id_test": 11_327, "id_val": 11_483, "train": 76_863},
)  # fmt: skip

_GET = "Get {} from https://wilds.stanford.edu/datasets/ and unpack it; the package `wilds` is not "
_GET += "needed"

register_dataset(
    Dataset(
        name="camelyon17",
        title="Camelyon17-WILDS (Bandi et al., 2018; Koh et al., 2021)",
        classes=2,
        images="85,054 test, 34,904 val, 33,560 id_val and 302,436 training",
        size="10.7 GB",
        get=_GET.format("camelyon17_v1.0"),
        layout="""
metadata.csv
patches/patient_004_node_4/patch_patient_004_node_4_x_3328_y_21792.png …
""",
        open=open_camelyon17,
        splits=tuple(_CAMELYON17.counts),
        preprocessing=Preprocessing(size=(96, 96)),
        missing=_CAMELYON17.missing,
        check=_CAMELYON17.check,
    )
)
register_dataset(
    Dataset(
        name="rxrx1",
        title="RxRx1-WILDS (Taylor et al., 2019; Koh et al., 2021)",
        classes=1139,
        images="34,432 test, 9,854 val, 40,612 id_test and 40,612 training",
        size="7.4 GB",
        get=_GET.format("rxrx1_v1.0"),
        layout="""
metadata.csv
images/HEPG2-01/Plate1/B02_s1.png …
""",
        open=open_rxrx1,
        splits=tuple(_RXRX1.counts),
        missing=_RXRX1.missing,
        check=_RXRX1.check,
    )
)
register_dataset(
    Dataset(
        name="fmow",
        title="FMoW-WILDS (Christie et al., 2018; Koh et al., 2021)",
        classes=62,
        images="22,108 test, 19,915 val, 11,327 id_test, 11,483 id_val and 76,863 training",
        size="53.9 GB",
        get=_GET.format("fmow_v1.1"),
        layout="""
rgb_metadata.csv
images/rgb_img_0.png …
""",
        open=open_fmow,
        splits=tuple(_FMOW.counts),
        preprocessing=Preprocessing(size=(224, 224)),
        missing=_FMOW.missing,
        check=_FMOW.check,
    )
)
