"""MNIST-M: digits laid over pieces of colour photos."""

from __future__ import annotations

from pathlib import Path

from acclimate.data.base import ImageSource
from acclimate.data.benchmarks._array_sets import (
    array_source,
    check_count,
    check_pictures,
    find_file,
    labelled_npz,
    plain_scaling,
)
from acclimate.data.benchmarks._file_lists import listed_source
from acclimate.data.benchmarks.digits import DIGITS
from acclimate.data.benchmarks.registry import Dataset, Request, register_dataset
from acclimate.errors import AcclimateError

__all__ = ["open_mnist_m"]

# As published, and as made anew from all of MNIST (`build_mnist_m`). The paper states the latter.
_COUNTS = {"test": (9_001, 10_000), "train": (59_001, 60_000)}
_FOLDERS = ("", "mnist_m/")


def open_mnist_m(request: Request) -> ImageSource:
    """The pictures of a split, in colour; 32×32 as published."""
    split = request.split or "test"
    npz = find_file(request.root, [f"mnist-m-{split}.npz"])
    if npz is not None:
        images, labels = labelled_npz(npz)
        check_pictures(images, (32, 32, 3), (28, 28, 3), where=npz)
        check_count(request, str(npz), len(images), *_COUNTS[split])
        return array_source(request, images, labels, class_names=DIGITS, where=npz)
    table = _table(request.root, split)
    if table is None:
        request.refuse(f"expected mnist_m_{split}_labels.txt of MNIST-M in {request.root}")
    rows = _read_table(table)
    check_count(request, str(table), len(rows), *_COUNTS[split])
    return listed_source(
        request,
        table.with_name(f"mnist_m_{split}"),
        [name for name, _ in rows],
        [label for _, label in rows],
        class_names=DIGITS,
    )


def _read_table(path: Path) -> list[tuple[str, int]]:
    """Names and labels of a list with one ``00000000.png 7`` to a line."""
    rows: list[tuple[str, int]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise AcclimateError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        if not name or label not in DIGITS:
            raise AcclimateError(
                f"expected a file name and a digit in line {number} of {path}, got {line!r:.80}"
            )
        rows.append((name.strip(), int(label)))
    return rows


def _table(root: Path, split: str) -> Path | None:
    return find_file(root, [f"{folder}mnist_m_{split}_labels.txt" for folder in _FOLDERS])


def _missing(root: Path) -> list[str]:
    missing = []
    for split in _COUNTS:
        table = _table(root, split)
        if find_file(root, [f"mnist-m-{split}.npz"]) is not None:
            continue
        if table is None:
            missing.append(f"mnist_m_{split}_labels.txt")
        if table is None or not table.with_name(f"mnist_m_{split}").is_dir():
            missing.append(f"mnist_m_{split}/")
    return missing


register_dataset(
    Dataset(
        name="mnist-m",
        title="MNIST-M (Ganin & Lempitsky, 2015)",
        classes=10,
        images="9,001 test and 59,001 training",
        size="about 160 MB",
        get="Get mnist_m.tar.gz by way of http://yaroslav.ganin.net and unpack it; or make the set "
        "from MNIST and photos with acclimate.data.benchmarks.mnist_m_builder.build_mnist_m",
        layout="""
mnist_m_test/00000000.png …, mnist_m_test_labels.txt
mnist_m_train/00000000.png …, mnist_m_train_labels.txt
or mnist-m-test.npz, mnist-m-train.npz (arrays images and labels)
""",
        open=open_mnist_m,
        splits=("test", "train"),
        preprocessing=plain_scaling(32),
        missing=_missing,
    )
)
