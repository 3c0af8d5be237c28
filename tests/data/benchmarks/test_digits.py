"""MNIST, USPS and SVHN from files as they are published."""

from __future__ import annotations

import bz2
import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from acclimate.data.benchmarks import missing_parts, open_dataset
from acclimate.errors import AcclimateError, AcclimateWarning
from published_layouts import SVHN, write_svhn

RANDOM = np.random.default_rng(0)
MNIST = RANDOM.integers(0, 256, (4, 28, 28), dtype=np.uint8)
ALL = torch.arange(4)


def open_some(name: str, root: Path, **options):
    with pytest.warns(AcclimateWarning, match="results will not compare"):
        return open_dataset(name, root, incomplete=True, **options)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(root: Path, stem: str = "t10k", sign: str = "-", packed: bool = False) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images", MNIST), ("labels", np.array([7, 2, 1, 0], np.uint8))):
        name = f"{stem}-{kind}{sign}idx{array.ndim}-ubyte"
        if packed:
            (root / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (root / name).write_bytes(idx(array))


@pytest.mark.parametrize(
    ("folder", "sign", "packed"),
    [(".", "-", False), (".", "-", True), (".", ".", False), ("MNIST/raw", "-", True)],
)
def test_mnist_from_idx_files(tmp_path, folder, sign, packed):
    write_mnist(tmp_path / folder, sign=sign, packed=packed)
    source = open_some("mnist", tmp_path)
    np.testing.assert_array_equal(source.read(ALL)[:, 0].numpy(), MNIST)
    assert source.labels.tolist() == [7, 2, 1, 0]
    assert source.class_names == tuple("0123456789")


def test_mnist_train_and_npz(tmp_path):
    write_mnist(tmp_path, "train")
    assert open_some("mnist", tmp_path, split="train").labels.tolist() == [7, 2, 1, 0]
    np.savez(tmp_path / "mnist-test.npz", images=MNIST, labels=[9, 9, 9, 9])
    assert open_some("mnist", tmp_path).labels.tolist() == [9, 9, 9, 9]
    assert missing_parts("mnist", tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(MNIST)[:-1], "expected 4×28×28 bytes .* got 3,135"),
        (idx(MNIST) + b"x", "got 3,137"),
        (b"", "another kind"),
        (b"\0\0\x08", "another kind"),
        (b"\0\0\x0d\x01\0\0\0\0", "another kind"),
        (gzip.compress(idx(MNIST))[:-20], "cannot read"),
        (idx(np.zeros((4, 16, 16), np.uint8)), "N×28×28 .* got uint8 4×16×16"),
    ],
    ids=["short", "long", "empty", "cut", "other-type", "cut-gzip", "other-size"],
)
@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_broken_idx_files_are_named(tmp_path, content, message):
    write_mnist(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(AcclimateError, match=message):
        open_dataset("mnist", tmp_path, incomplete=True)


def test_mnist_that_is_not_whole(tmp_path):
    write_mnist(tmp_path)
    with pytest.raises(AcclimateError, match=r"expected 10,000 images in .*, got 4"):
        open_dataset("mnist", tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(AcclimateError, match=r"t10k-labels-idx1-ubyte\.gz(?s:.*)11 MiB"):
        open_dataset("mnist", tmp_path)
    assert len(missing_parts("mnist", tmp_path)) == 3


def line(label: int, values) -> str:
    return f"{label} " + " ".join(f"{place}:{value}" for place, value in enumerate(values, start=1))


def write_usps(root: Path, *lines: str, packed: bool = True) -> None:
    text = ("\n".join(lines) + "\n").encode()
    if packed:
        (root / "usps.t.bz2").write_bytes(bz2.compress(text))
    else:
        (root / "usps.t").write_bytes(text)


@pytest.mark.parametrize("packed", [True, False])
def test_usps_from_libsvm(tmp_path, packed):
    first = line(1, [-1.0, 0.0, 1.0, 0.5] + [-1] * 252)
    write_usps(tmp_path, first, line(10, [1] * 256), "7 256:-1", packed=packed)
    source = open_some("usps", tmp_path)
    assert source.labels.tolist() == [0, 9, 6]
    read = source.read(torch.arange(3))[:, 0]
    assert read[0, 0, :5].tolist() == [0, 128, 255, 191, 0]
    assert read[1].unique().tolist() == [255]
    # What is left out is zero, the middle of the range.
    assert read[2, 15, 14:].tolist() == [128, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 257:0.5", "line 2 "),
        ("1 0:0.5", "line 2 "),
        ("1 5:nan", r"from -1 to 1 .* 1 lines \(first: 2\)"),
        ("1 5:1.5", r"from -1 to 1"),
        ("1 5", "line 2 "),
        ("one 5:1", "line 2 "),
        ("11 5:1", "labels 0 to 9 .* others: 10"),
    ],
)
@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_lines_that_are_no_digits_are_named(tmp_path, text, message):
    write_usps(tmp_path, line(1, [0] * 256), text)
    with pytest.raises(AcclimateError, match=message):
        open_dataset("usps", tmp_path, incomplete=True)


def test_usps_as_npz_with_the_published_count(tmp_path):
    images = RANDOM.integers(0, 256, (2007, 16, 16), dtype=np.uint8)
    np.savez(tmp_path / "usps-test.npz", images=images, labels=np.arange(2007) % 10)
    assert len(open_dataset("usps", tmp_path)) == 2007
    np.savez(tmp_path / "usps-test.npz", images=images[:-1], labels=np.arange(2006) % 10)
    with pytest.raises(AcclimateError, match=r"expected 2,007 images in .*, got 2,006"):
        open_dataset("usps", tmp_path)
    assert missing_parts("usps", tmp_path) == ["usps.bz2"]


def test_usps_in_h5_is_refused_with_the_reason(tmp_path):
    (tmp_path / "usps.h5").write_bytes(b"")
    with pytest.raises(AcclimateError, match=r"expected usps\.t\.bz2 (?s:.*)h5py would be needed"):
        open_dataset("usps", tmp_path)


def test_broken_bz2(tmp_path):
    (tmp_path / "usps.t.bz2").write_bytes(b"BZh9 not really")
    with pytest.raises(AcclimateError, match="cannot read"):
        open_dataset("usps", tmp_path)


def test_svhn_writes_ten_for_zero(tmp_path):
    write_svhn(tmp_path / "test_32x32.mat")
    source = open_some("svhn", tmp_path)
    np.testing.assert_array_equal(source.read(ALL).numpy(), SVHN.transpose(0, 3, 1, 2))
    assert source.labels.tolist() == [1, 9, 0, 5]
    assert missing_parts("svhn", tmp_path) == ["train_32x32.mat"]


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_svhn_that_is_wrong(tmp_path):
    path = tmp_path / "test_32x32.mat"
    write_svhn(path)
    with pytest.raises(AcclimateError, match=r"expected 26,032 images in .*, got 4"):
        open_dataset("svhn", tmp_path)
    write_svhn(path, labels=(0, 11, 1, 2))
    with pytest.raises(AcclimateError, match=r"labels 1 to 10 .* 2 others: 0, 11"):
        open_dataset("svhn", tmp_path, incomplete=True)
    savemat(path, {"X": SVHN})
    with pytest.raises(AcclimateError, match="got no y"):
        open_dataset("svhn", tmp_path, incomplete=True)
    write_svhn(path, images=SVHN[:, :16])
    with pytest.raises(AcclimateError, match="N×3×32×32"):
        open_dataset("svhn", tmp_path, incomplete=True)
    path.write_bytes(b"no matlab")
    with pytest.raises(AcclimateError, match="readable MATLAB file"):
        open_dataset("svhn", tmp_path, incomplete=True)
