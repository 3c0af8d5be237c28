"""A look whether a data set is there: files are listed, and no image is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from acclimate.data.benchmarks.registry import check_dataset, list_datasets
from acclimate.data.labels import imagenet_classes
from acclimate.errors import AcclimateError
from benchmarks_trees import class_folders

pytestmark = pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
IDS = imagenet_classes().ids or ()
INSIDE = {"imagenet": "val", "imagenet-r": "imagenet-r", "imagenet-sketch": "sketch"}


def broken_images(base: Path) -> None:
    """What would be left out if anything looked into it."""
    for path in base.rglob("*.JPEG"):
        path.unlink()
        path.write_bytes(b"no image")


@pytest.mark.parametrize("name", INSIDE)
def test_folders_are_listed_and_nothing_is_decoded(name, tmp_path):
    class_folders(tmp_path / INSIDE[name], IDS[1:3])
    broken_images(tmp_path)
    check_dataset(name, tmp_path, incomplete=True)
    with pytest.raises(AcclimateError, match=r"missing|expected"):
        check_dataset(name, tmp_path)


def test_v2_is_listed_by_index(tmp_path):
    class_folders(tmp_path / "imagenetv2-matched-frequency-format-val", ["0", "1"], each=10)
    broken_images(tmp_path)
    check_dataset("imagenetv2", tmp_path, incomplete=True)
    with pytest.raises(AcclimateError, match=r"expected imagenetv2-top-images"):
        check_dataset("imagenetv2", tmp_path, split="top-images")


def test_the_images_of_a_table_are_asked_for_by_name(tmp_path):
    columns = ["patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split"]
    row = ["004", "4", "3328", "21792", "1", "23", "2", "0"]
    (tmp_path / "metadata.csv").write_text(f",{','.join(columns)}\n0,{','.join(row)}\n")
    with pytest.raises(AcclimateError, match=r"expected 1 images in .*, found none of them"):
        check_dataset("camelyon17", tmp_path, incomplete=True)
    patch = (
        tmp_path / "patches" / "patient_004_node_4" / "patch_patient_004_node_4_x_3328_y_21792.png"
    )
    patch.parent.mkdir(parents=True)
    patch.write_bytes(b"no image")
    check_dataset("camelyon17", tmp_path, incomplete=True)


LISTED = [record for record in list_datasets() if record.check is not None]


@pytest.mark.parametrize("record", LISTED, ids=lambda record: record.name)
def test_an_empty_folder_is_no_data_set(record, tmp_path):
    shift = record.shifts[0] if record.shifts else None
    with pytest.raises(AcclimateError):
        check_dataset(record.name, tmp_path, shift=shift, severity=1 if record.severities else None)
