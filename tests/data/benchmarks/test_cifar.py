"""CIFAR-10 in its three forms, CIFAR-10-C and CIFAR-10.1, from files as they are published."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from acclimate.data import Preprocessing
from acclimate.data.benchmarks import missing_parts, open_dataset
from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES
from acclimate.errors import AcclimateError, AcclimateWarning

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
LABELS = [3, 8, 8, 0, 6, 9]
ALL = torch.arange(6)


def write_binary(path: Path, images=IMAGES, labels=LABELS) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = [bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True)]
    path.write_bytes(b"".join(rows))


def python2_pickle(images, labels) -> bytes:
    """What cPickle of Python 2 wrote, opcode by opcode: its strings are no bytes of Python 3."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNN" + number(-1) * 2 + b"K\x00tb"
    data = empty + b"(K\x01" + number(len(images)) + number(3072) + b"\x86" + kind
    data += b"\x89" + text(images.tobytes()) + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    head = text(b"batch_label") + text(b"testing batch 1 of 1")
    return b"\x80\x02}(" + head + text(b"data") + data + text(b"labels") + listed + b"u."


def write_python(path: Path, content: bytes | None = None) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(python2_pickle(IMAGES, LABELS) if content is None else content)


def write_npz(path: Path, **changes) -> None:
    arrays = {"images": IMAGES.transpose(0, 2, 3, 1), "labels": np.array(LABELS), **changes}
    np.savez(path, **arrays)


def open_some(root: Path, name: str = "cifar10", **options):
    with pytest.warns(AcclimateWarning, match="results will not compare"):
        return open_dataset(name, root, incomplete=True, **options)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("cifar-10-batches-bin/test_batch.bin", write_binary),
        ("test_batch.bin", write_binary),
        ("cifar-10-batches-py/test_batch", write_python),
        ("test_batch", write_python),
        ("cifar10-test.npz", write_npz),
    ],
)
def test_all_forms_hold_the_same(tmp_path, name, write):
    write(tmp_path / name)
    source = open_some(tmp_path)
    np.testing.assert_array_equal(source.read(ALL).numpy(), IMAGES)
    assert source.labels.tolist() == LABELS
    assert source.class_names == CIFAR10_CLASSES
    assert source.preprocessing.mean == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_of_python_3_is_read_too(tmp_path, protocol):
    batch = {b"data": IMAGES.reshape(6, -1), b"labels": LABELS, b"filenames": [b"a.png"]}
    write_python(tmp_path / "test_batch", pickle.dumps(batch, protocol=protocol))
    source = open_some(tmp_path)
    np.testing.assert_array_equal(source.read(ALL).numpy(), IMAGES)


def test_the_training_split_is_its_five_batches_in_order(tmp_path):
    for number in range(1, 6):
        path = tmp_path / f"cifar-10-batches-bin/data_batch_{number}.bin"
        write_binary(path, IMAGES[:1] * 0 + number, [number])
    source = open_some(tmp_path, split="train")
    assert source.labels.tolist() == [1, 2, 3, 4, 5]
    assert source.read(torch.arange(5))[:, 0, 0, 0].tolist() == [1, 2, 3, 4, 5]
    assert missing_parts("cifar10", tmp_path) == ["test_batch.bin"]


def test_a_missing_batch_is_named(tmp_path):
    for number in (1, 2, 4, 5):
        write_binary(tmp_path / f"data_batch_{number}.bin")
    with pytest.raises(AcclimateError, match=r"data_batch_3\.bin of cifar10 not found"):
        open_dataset("cifar10", tmp_path, split="train")
    assert len(open_some(tmp_path, split="train")) == 24


def test_a_wrong_count_is_refused(tmp_path):
    write_npz(tmp_path / "cifar10-test.npz")
    with pytest.raises(AcclimateError, match=r"expected 10,000 images in .*, got 6"):
        open_dataset("cifar10", tmp_path)


def test_nothing_there_tells_what_to_get(tmp_path):
    with pytest.raises(AcclimateError, match=r"163 MiB(?s:.*)cs\.toronto\.edu") as error:
        open_dataset("cifar10", tmp_path)
    assert "cifar-10-batches-bin" in str(error.value)


def test_the_models_preprocessing_wins(tmp_path):
    write_npz(tmp_path / "cifar10-test.npz")
    wanted = Preprocessing(size=(8, 8))
    assert open_some(tmp_path, preprocessing=wanted).read(ALL).shape == (6, 3, 8, 8)


def test_a_cut_off_binary_is_refused(tmp_path):
    (tmp_path / "test_batch.bin").write_bytes(bytes(3073 + 100))
    with pytest.raises(AcclimateError, match=r"records of 3073 bytes .* got 3,173 bytes"):
        open_dataset("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([0, 1, 10, 3, -1, 5])}, "labels 0 to 9 .* 2 others: -1, 10"),
        ({"labels": np.array([0, 1])}, "one label for each of 6 images"),
        ({"labels": np.full(6, 0.5)}, "whole numbers as labels"),
        ({"images": np.zeros((6, 28, 28), np.uint8)}, "N×32×32×3 .* got uint8 6×28×28"),
        ({"images": np.zeros((6, 32, 32, 3), np.float32)}, "got float32"),
    ],
)
@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_what_does_not_fit_is_named(tmp_path, changes, message):
    write_npz(tmp_path / "cifar10-test.npz", **changes)
    with pytest.raises(AcclimateError, match=message):
        open_dataset("cifar10", tmp_path, incomplete=True)


class Attack:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_anything_else_is_refused(tmp_path, protocol):
    trap = tmp_path / "sprung"
    batch = {b"data": Attack(os.mkdir, str(trap)), b"labels": LABELS}
    write_python(tmp_path / "test_batch", pickle.dumps(batch, protocol=protocol))
    with pytest.raises(AcclimateError, match="could run code"):
        open_dataset("cifar10", tmp_path)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no pickle at all", "expected a batch of CIFAR-10"),
        (b"", "expected a batch of CIFAR-10"),
        (pickle.dumps([1, 2]), "expected a dictionary"),
        (pickle.dumps({"data": b"123", "labels": [1]}), "uint8 'data' of N×3072"),
        (pickle.dumps({b"data": np.zeros((1, 3072)), b"labels": [1]}, 2), "of type 'f8'"),
        (pickle.dumps({b"data": np.zeros((1, 9), np.uint8), b"labels": [1]}, 2), "N×3072"),
        (pickle.dumps({b"data": np.array([{}]), b"labels": [1]}, 2), "of type 'O8'"),
        (pickle.dumps({b"data": IMAGES.reshape(6, -1), b"labels": "x"}, 2), "list of numbers"),
        (b"\x80\x02c_codecs\nencode\n}U\x01aK\x01sb.", "expected a batch"),
    ],
)
def test_other_pickles_are_refused(tmp_path, content, message):
    write_python(tmp_path / "test_batch", content)
    with pytest.raises(AcclimateError, match=message):
        open_dataset("cifar10", tmp_path)


def write_corrupted(root: Path, count: int = 4, labels=None) -> None:
    """Five severities; each image has the value 10 × severity + its number."""
    root.mkdir(exist_ok=True)
    values = np.add.outer(10 * np.arange(1, 6), np.arange(count)).reshape(-1).astype(np.uint8)
    np.save(root / "fog.npy", np.broadcast_to(values[:, None, None, None], (5 * count, 32, 32, 3)))
    np.save(root / "labels.npy", np.tile(np.arange(count), 5) if labels is None else labels)


def promise(root: Path, content: object) -> None:
    (root / "manifest.json").write_text(json.dumps(content))


@pytest.mark.parametrize("folder", ["", "CIFAR-10-C"])
@pytest.mark.parametrize("labels", [None, np.arange(4, dtype=np.uint8)])
def test_a_severity_is_its_rows(tmp_path, folder, labels):
    write_corrupted(tmp_path / folder, labels=labels)
    promise(tmp_path / folder, {"images": 4})
    for severity in range(1, 6):
        source = open_dataset("cifar10-c", tmp_path, shift="fog", severity=severity)
        wanted = [10 * severity + number for number in range(4)]
        assert source.read(torch.arange(4))[:, 0, 0, 0].tolist() == wanted
        assert source.labels.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("manifest", [None, {"images": 5}, {"images": "4"}, [4]])
def test_fewer_images_than_published_are_refused_unless_in_the_manifest(tmp_path, manifest):
    write_corrupted(tmp_path)
    if manifest is not None:
        promise(tmp_path, manifest)
    with pytest.raises(AcclimateError, match=r"5 severities of (10,000|5) images .* got 5 times 4"):
        open_dataset("cifar10-c", tmp_path, shift="fog", severity=2)
    assert len(open_some(tmp_path, "cifar10-c", shift="fog", severity=2)) == 4


def test_the_published_size_needs_no_manifest(tmp_path):
    # A sparse file: 50,000 zero images that take no room.
    header = np.lib.format.open_memmap(
        tmp_path / "fog.npy", mode="w+", dtype=np.uint8, shape=(50_000, 32, 32, 3)
    )
    header[40_000] = 7
    np.save(tmp_path / "labels.npy", np.tile(np.arange(10_000) % 10, 5))
    source = open_dataset("cifar10-c", tmp_path, shift="fog", severity=5)
    assert len(source) == 10_000
    assert source.read(torch.tensor([0, 1]))[:, 0, 0, 0].tolist() == [7, 0]


def test_what_is_missing_of_cifar10_c_is_listed(tmp_path):
    write_corrupted(tmp_path)
    missing = missing_parts("cifar10-c", tmp_path)
    assert len(missing) == 18
    assert "gaussian_noise.npy" in missing
    assert "fog.npy" not in missing
    with pytest.raises(AcclimateError, match=r"snow\.npy .* 18 of its 20 files are missing"):
        open_dataset("cifar10-c", tmp_path, shift="snow", severity=1)
    (tmp_path / "labels.npy").unlink()
    with pytest.raises(AcclimateError, match=r"expected labels\.npy"):
        open_dataset("cifar10-c", tmp_path, shift="fog", severity=1)


def test_frost_under_another_name_is_not_taken_for_it(tmp_path):
    write_corrupted(tmp_path)
    (tmp_path / "frost-made.npy").touch()
    with pytest.raises(AcclimateError, match=r"frost-made\.npy is there, but is something else"):
        open_dataset("cifar10-c", tmp_path, shift="frost", severity=1)


@pytest.mark.parametrize("severity", [0, 6, None, 2.0])
def test_an_unknown_severity_is_refused(tmp_path, severity):
    with pytest.raises(AcclimateError, match="1, 2, 3, 4 or 5"):
        open_dataset("cifar10-c", tmp_path, shift="fog", severity=severity)


def test_an_unknown_corruption_is_refused(tmp_path):
    with pytest.raises(AcclimateError, match="did you mean 'fog'"):
        open_dataset("cifar10-c", tmp_path, shift="fogg", severity=1)


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_rows_that_do_not_divide_or_fit_are_refused(tmp_path):
    write_corrupted(tmp_path, labels=np.zeros(19, int))
    with pytest.raises(AcclimateError, match=r"expected 20 labels \(or 4, .* got 19"):
        open_dataset("cifar10-c", tmp_path, shift="fog", severity=1, incomplete=True)
    np.save(tmp_path / "fog.npy", np.zeros((7, 32, 32, 3), np.uint8))
    with pytest.raises(AcclimateError, match="got 7 images, which is no multiple of 5"):
        open_dataset("cifar10-c", tmp_path, shift="fog", severity=1, incomplete=True)
    (tmp_path / "fog.npy").write_bytes(b"\x93NUMPY and no more")
    with pytest.raises(AcclimateError, match=r"fog\.npy"):
        open_dataset("cifar10-c", tmp_path, shift="fog", severity=1, incomplete=True)


def write_10_1(root: Path, version: str, count: int) -> None:
    root.mkdir(parents=True, exist_ok=True)
    np.save(root / f"cifar10.1_{version}_data.npy", np.zeros((count, 32, 32, 3), np.uint8))
    np.save(root / f"cifar10.1_{version}_labels.npy", np.arange(count, dtype=np.int32) % 10)


@pytest.mark.parametrize(("version", "count"), [("v6", 2000), ("v4", 2021)])
@pytest.mark.parametrize("folder", [".", "datasets", "CIFAR-10.1/datasets"])
def test_cifar10_1_of_both_versions(tmp_path, version, count, folder):
    write_10_1(tmp_path / folder, version, count)
    source = open_dataset("cifar10.1", tmp_path, split=version)
    assert len(source) == count
    assert source.labels[:3].tolist() == [0, 1, 2]
    other = {"v6": "v4", "v4": "v6"}[version]
    assert missing_parts("cifar10.1", tmp_path) == [
        f"cifar10.1_{other}_data.npy",
        f"cifar10.1_{other}_labels.npy",
    ]


def test_cifar10_1_with_another_count_or_no_labels(tmp_path):
    write_10_1(tmp_path, "v6", 2021)
    with pytest.raises(AcclimateError, match=r"expected 2,000 images in .*, got 2,021"):
        open_dataset("cifar10.1", tmp_path)
    (tmp_path / "cifar10.1_v6_labels.npy").unlink()
    with pytest.raises(AcclimateError, match=r"expected cifar10\.1_v6_labels\.npy"):
        open_dataset("cifar10.1", tmp_path)
