"""Camelyon17, RxRx1 and FMoW from small copies in the layout WILDS publishes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from acclimate.data import Preprocessing
from acclimate.data.benchmarks import missing_parts, open_dataset
from acclimate.data.benchmarks.wilds import CAMELYON17_CLASSES, FMOW_CLASSES
from acclimate.errors import AcclimateError, AcclimateWarning
from published_layouts import table, write_camelyon17, write_fmow, write_rxrx1


def open_some(name: str, root: Path, split: str, **options):
    with pytest.warns(AcclimateWarning, match="results will not compare"):
        return open_dataset(name, root, split=split, incomplete=True, **options)


@pytest.mark.parametrize("folder", [".", "camelyon17_v1.0"])
def test_camelyon17_splits_by_hospital(tmp_path, folder):
    write_camelyon17(tmp_path / folder)
    found = {
        split: open_some("camelyon17", tmp_path, split) for split in ("train", "id_val", "val")
    }
    assert {split: source.labels.tolist() for split, source in found.items()} == {
        "train": [1, 0],
        "id_val": [0],
        "val": [0],
    }
    test = open_some("camelyon17", tmp_path, "test")
    slide = "patient_042_node_3"
    assert test.names == [
        f"patches/{slide}/patch_{slide}_x_300_y_400.png",
        f"patches/{slide}/patch_{slide}_x_300_y_500.png",
    ]
    assert test.labels.tolist() == [1, 0]
    assert test.class_names == CAMELYON17_CLASSES
    assert test.read(torch.arange(2)).shape == (2, 3, 96, 96)
    assert missing_parts("camelyon17", tmp_path) == []


def test_rxrx1_keeps_site_2_of_training_for_id_test(tmp_path):
    write_rxrx1(tmp_path)
    labels = {
        split: open_some("rxrx1", tmp_path, split).labels.tolist()
        for split in ("train", "id_test", "val", "test")
    }
    assert labels == {"train": [5], "id_test": [5], "val": [1138], "test": [0, 1107]}
    assert open_some("rxrx1", tmp_path, "id_test").names == ["images/HEPG2-01/Plate1/B02_s2.png"]


def test_rxrx1_is_standardised_one_by_one_unless_given(tmp_path):
    write_rxrx1(tmp_path)
    source = open_some("rxrx1", tmp_path, "test")
    assert source.preprocessing is None
    read = source.read(torch.tensor([1]))
    assert read.dtype == torch.float32
    with Image.open(tmp_path / "images/HUVEC-17/Plate4/O23_s2.png") as image:
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).double()
    wanted = (pixels - pixels.mean((1, 2), keepdim=True)) / pixels.std((1, 2), keepdim=True)
    torch.testing.assert_close(read[0].double(), wanted, rtol=0, atol=1e-5)
    given = open_some("rxrx1", tmp_path, "test", preprocessing=Preprocessing(size=(256, 256)))
    assert given.read(torch.tensor([1])).dtype == torch.uint8
    assert given.fingerprint() != source.fingerprint()


def test_fmow_splits_by_year_and_counts_rows_with_the_sequestered(tmp_path):
    write_fmow(tmp_path)
    found = {}
    for split in ("train", "id_val", "val", "id_test", "test"):
        source = open_some("fmow", tmp_path, split)
        classes = [FMOW_CLASSES[label] for label in source.labels.tolist()]
        numbers = [int(name.removeprefix("images/rgb_img_")[:-4]) for name in source.names]
        found[split] = list(zip(numbers, classes, strict=True))
    assert found == {
        "train": [(0, "airport")],
        "id_val": [(3, "zoo")],
        "val": [(4, "barn")],
        "id_test": [(6, "dam")],
        "test": [(8, "tower"), (9, "zoo")],
    }
    assert len(FMOW_CLASSES) == 62


@pytest.mark.parametrize(
    ("name", "write", "count"),
    [
        ("camelyon17", write_camelyon17, "85,054"),
        ("rxrx1", write_rxrx1, "34,432"),
        ("fmow", write_fmow, "22,108"),
    ],
)
def test_counts_other_than_published_are_refused(tmp_path, name, write, count):
    write(tmp_path)
    with pytest.raises(AcclimateError, match=rf"expected {count} images in the split test .* 2"):
        open_dataset(name, tmp_path)
    for file in list(tmp_path.rglob("*.png")):
        file.unlink()
    with (
        pytest.warns(AcclimateWarning),
        pytest.raises(AcclimateError, match=r"expected 2 images in .*, found none(?s:.*)wilds"),
    ):
        open_dataset(name, tmp_path, incomplete=True)


def test_missing_images_are_named(tmp_path):
    write_fmow(tmp_path)
    (tmp_path / "images/rgb_img_8.png").unlink()
    with pytest.warns(AcclimateWarning) as caught:
        source = open_dataset("fmow", tmp_path, incomplete=True)
    assert len(source) == 1
    assert any("1 of 2 images are not in" in str(warning.message) for warning in caught)
    assert any("images/rgb_img_8.png" in str(warning.message) for warning in caught)


def test_unreadable_images_are_named(tmp_path):
    write_fmow(tmp_path)
    (tmp_path / "images/rgb_img_8.png").write_bytes(b"broken")
    with pytest.warns(AcclimateWarning) as caught:
        source = open_dataset("fmow", tmp_path, incomplete=True)
    assert source.names == ["images/rgb_img_9.png"]
    assert source.labels.tolist() == [FMOW_CLASSES.index("zoo")]
    assert any("rgb_img_8.png: not an image" in str(warning.message) for warning in caught)


def test_nothing_there(tmp_path):
    with pytest.raises(AcclimateError, match=r"rgb_metadata\.csv(?s:.*)53\.9 GB"):
        open_dataset("fmow", tmp_path)
    assert missing_parts("fmow", tmp_path) == ["rgb_metadata.csv", "images/"]
    assert missing_parts("camelyon17", tmp_path) == ["metadata.csv", "patches/"]


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("camelyon17", ("1", 1, 1, 1, 2, 0, 2, 0), "0 to 1 as tumor in line 2 of .* got '2'"),
        ("camelyon17", ("1", 1, 1, 1, 0, 0, 5, 0), "0 to 4 as center"),
        ("camelyon17", ("1", 1, 1, 1, 0, 0, 0, 7), "0 to 1 as split"),
        ("camelyon17", ("1", 1, 1, 1, "nan", 0, 2, 0), "as tumor .* got 'nan'"),
        ("camelyon17", ("1", 1, 1, 1), "expected 9 values in line 2 of .* got 5"),
        ("rxrx1", ("A", 1, "B", 1, "test", 1139), "0 to 1138 as sirna_id"),
        ("rxrx1", ("A", 1, "B", 1, "dev", 0), "train, val or test as dataset"),
        ("fmow", ("test", "moon_base", "2017-01-01T00:00:00Z"), "one of the 62 categories"),
        ("fmow", ("test", "zoo", "2017-01-01T00:00:00+02:00"), "a moment like"),
        ("fmow", ("test", "zoo", ""), "a moment like"),
        ("fmow", ("extra", "zoo", "2017-01-01T00:00:00Z"), "train, val, test or seq as split"),
    ],
)
def test_rows_the_rules_do_not_foresee_are_named(tmp_path, name, row, message):
    columns = {
        "camelyon17": "patient node x_coord y_coord tumor slide center split",
        "rxrx1": "experiment plate well site dataset sirna_id",
        "fmow": "split category timestamp",
    }
    file = "rgb_metadata.csv" if name == "fmow" else "metadata.csv"
    table(tmp_path / file, columns[name], [row])
    with pytest.raises(AcclimateError, match=message):
        open_dataset(name, tmp_path, incomplete=True)


def test_a_table_without_its_columns(tmp_path):
    table(tmp_path / "metadata.csv", "patient node", [])
    with pytest.raises(AcclimateError, match=r"got no x_coord, y_coord, tumor, center, split"):
        open_dataset("camelyon17", tmp_path)
    (tmp_path / "metadata.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(AcclimateError, match=r"cannot read .*metadata\.csv"):
        open_dataset("camelyon17", tmp_path)
