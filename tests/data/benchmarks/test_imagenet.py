"""ImageNet's validation set, in class folders or in one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from acclimate.data import ImageSource
from acclimate.data.benchmarks import imagenet, open_dataset
from acclimate.data.labels import imagenet_classes, imagenet_index
from acclimate.errors import AcclimateError, AcclimateWarning
from benchmarks_trees import TINY, class_folders, write_image

IDS = imagenet_classes().ids or ()


def open_tiny(root: Path, **options: object) -> ImageSource:
    return open_dataset("imagenet", root, preprocessing=TINY, progress=False, **options)


@pytest.fixture
def two_each(monkeypatch):
    """As if the set had two images in a class: what is checked is not how many fifty are."""
    monkeypatch.setattr(imagenet, "_IMAGES", 2000)
    monkeypatch.setattr(imagenet, "_EACH", 2)


@pytest.mark.parametrize("inside", ["val", "ILSVRC/Data/CLS-LOC/val", "."])
def test_class_folders_are_indexed_as_models_do(two_each, tmp_path, inside):
    class_folders(tmp_path / "root" / inside, IDS, each=2)
    source = open_tiny(tmp_path / "root")
    assert len(source) == 2000
    assert source.labels is not None
    assert source.labels.tolist() == [index for index in range(1000) for _ in range(2)]
    assert source.names[1] == "n01440764/image_0001.JPEG"
    assert source.class_names == IDS
    assert source.scoring is None
    assert source.read(torch.tensor([1999])).shape == (1, 3, 8, 8)


def test_the_digest_does_not_depend_on_where_the_class_folders_lie(tmp_path):
    for base in (tmp_path / "a", tmp_path / "b" / "val"):
        write_image(base / IDS[3] / "1.JPEG", 9)
    digests = set()
    for root in (tmp_path / "a", tmp_path / "b"):
        with pytest.warns(AcclimateWarning):
            digests.add(open_tiny(root, incomplete=True).fingerprint())
    assert len(digests) == 1


def test_the_usual_preprocessing_is_that_of_the_paper(tmp_path):
    write_image(tmp_path / IDS[0] / "1.JPEG")
    with pytest.warns(AcclimateWarning):
        source = open_dataset("imagenet", tmp_path, progress=False, incomplete=True)
    assert source.preprocessing is not None
    assert source.preprocessing.describe().startswith("shorter side to 256 px (bilinear), centre 2")
    assert source.read(torch.tensor([0])).shape == (1, 3, 224, 224)


def test_missing_class_folders_are_named(tmp_path):
    class_folders(tmp_path / "val", [*IDS[:500], *IDS[502:]])
    with pytest.raises(AcclimateError, match=f"2 are missing: {IDS[500]}, {IDS[501]};"):
        open_tiny(tmp_path)


def test_wrong_counts_are_named_with_their_classes(two_each, tmp_path):
    class_folders(tmp_path / "val", IDS, each=2)
    (tmp_path / "val" / IDS[7] / "image_0000.JPEG").unlink()
    write_image(tmp_path / "val" / IDS[9] / "more.JPEG")
    expected = (
        rf"expected 2,000 images .* 2 in each .* found 2,000 \({IDS[7]} has 1, {IDS[9]} has 3"
    )
    with pytest.raises(AcclimateError, match=expected):
        open_tiny(tmp_path)
    with pytest.warns(AcclimateWarning, match=expected):
        assert len(open_tiny(tmp_path, incomplete=True)) == 2000


def test_counts_are_checked_before_anything_is_read(tmp_path, monkeypatch):
    class_folders(tmp_path / "val", IDS)

    def read(*_: object, **__: object) -> None:
        raise AssertionError("read too early")

    monkeypatch.setattr("acclimate.data.files.decode", read)
    with pytest.raises(AcclimateError, match="found 1,000"):
        open_tiny(tmp_path)


def test_a_folder_too_many_is_an_error_even_where_gaps_are_allowed(tmp_path):
    class_folders(tmp_path / "val", [*IDS, "n99999999"])
    with pytest.raises(
        AcclimateError, match=r"1 of 1001 folders .* none of the 1000 .*: n99999999"
    ):
        open_tiny(tmp_path, incomplete=True)


def test_empty_and_broken_files_are_named(two_each, tmp_path):
    class_folders(tmp_path / "val", IDS, each=2)
    empty = tmp_path / "val" / IDS[4] / "image_0001.JPEG"
    empty.unlink()
    empty.touch()
    with pytest.raises(AcclimateError, match=rf"1 of 2,000 .* empty.*{IDS[4]}/image_0001\.JPEG"):
        open_tiny(tmp_path)
    empty.write_bytes(b"<html>")
    with pytest.raises(AcclimateError, match=rf"1 of 2000 .*{IDS[4]}/image_0001\.JPEG: not an im"):
        open_tiny(tmp_path)


def test_other_files_do_not_count(two_each, tmp_path):
    class_folders(tmp_path / "val", IDS, each=2)
    (tmp_path / "val" / "README.txt").touch()
    (tmp_path / "val" / IDS[0] / "notes.txt").touch()
    (tmp_path / "val" / IDS[0] / ".hidden.JPEG").touch()
    assert len(open_tiny(tmp_path)) == 2000


def test_a_folder_with_nothing_of_it_tells_how_to_get_it(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(
        AcclimateError, match=r"found no class folders[\s\S]*6\.7 GB[\s\S]*image-net"
    ):
        open_tiny(tmp_path)


def test_a_file_as_root_is_no_folder(tmp_path):
    path = tmp_path / "val.tar"
    path.touch()
    with pytest.raises(AcclimateError, match="no class folders"):
        open_tiny(path)


# All images in one folder, as the archive unpacks.

SOLUTION = "LOC_val_solution.csv"


@pytest.fixture
def flat(tmp_path, monkeypatch):
    monkeypatch.setattr(imagenet, "_IMAGES", 3)
    for number in (1, 2, 3):
        write_image(tmp_path / "val" / f"ILSVRC2012_val_0000000{number}.JPEG", number)
    lines = [
        "ImageId,PredictionString",
        "ILSVRC2012_val_00000003,n01443537 1 2 3 4 n01443537 5 6 7 8 ",
        "ILSVRC2012_val_00000001,n15075141 1 2 3 4",
        "ILSVRC2012_val_00000002,n01440764 1 2 3 4",
    ]
    (tmp_path / SOLUTION).write_text("\n".join(lines) + "\n")
    return tmp_path


def test_one_folder_is_labelled_by_the_solution_file(flat):
    source = open_tiny(flat)
    assert source.labels is not None
    assert source.labels.tolist() == [999, 0, 1]
    assert source.class_names == ["n01440764", "n01443537", "n15075141"]


def test_one_folder_is_counted_too(flat):
    (flat / "val" / "ILSVRC2012_val_00000002.JPEG").unlink()
    with pytest.raises(AcclimateError, match=r"expected 3 images .* found 2"):
        open_tiny(flat)


def test_one_folder_without_a_solution_is_refused(flat):
    (flat / SOLUTION).unlink()
    with pytest.raises(AcclimateError, match=f"nothing tells their classes; .*{SOLUTION}"):
        open_tiny(flat, incomplete=True)


def test_the_indices_of_the_development_kit_are_not_taken_for_ours(flat):
    (flat / SOLUTION).unlink()
    (flat / "ILSVRC2012_validation_ground_truth.txt").write_text("490\n361\n171\n")
    with pytest.raises(AcclimateError, match="order of the development kit"):
        open_tiny(flat)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ILSVRC2012_val_00000001,n01440764", "2 images .* no line .*00000002.JPEG"),
        ("ILSVRC2012_val_00000001,", "an image and its class in line 1"),
        ("nonsense", "an image and its class in line 1"),
        (
            "".join(f"ILSVRC2012_val_0000000{n},n99999999\n" for n in (1, 2, 3)),
            "no classes of ImageNet: n99999999",
        ),
        ("\udcff", "expected lines of text"),
    ],
)
def test_a_bad_solution_is_named(flat, text, message):
    (flat / SOLUTION).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(AcclimateError, match=message):
        open_tiny(flat)


def test_the_index_counts_as_the_class_list_does():
    index = imagenet_index()
    assert list(index.values()) == list(range(1000))
    assert list(index) == list(IDS)
