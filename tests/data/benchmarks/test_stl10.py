"""STL-10 from its binary files, and its classes in CIFAR-10's numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from acclimate.data.benchmarks import find_dataset, missing_parts, open_dataset
from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES
from acclimate.data.benchmarks.stl10 import STL10_AS_CIFAR10, STL10_CLASSES
from acclimate.errors import AcclimateError, AcclimateWarning
from published_layouts import STL10 as IMAGES
from published_layouts import write_stl10 as write


def open_some(root: Path, name: str = "stl10", **options):
    with pytest.warns(AcclimateWarning, match="expected 8,000|expected 5,000|expected 100,000"):
        return open_dataset(name, root, incomplete=True, **options)


@pytest.mark.parametrize("folder", [".", "stl10_binary"])
def test_images_stand_upright(tmp_path, folder):
    write(tmp_path / folder)
    source = open_some(tmp_path)
    read = source.read(torch.arange(10))
    np.testing.assert_array_equal(read.numpy(), IMAGES.transpose(0, 3, 1, 2))
    assert source.labels.tolist() == list(range(10))
    assert source.class_names == STL10_CLASSES


def test_the_unlabelled_split_has_no_labels(tmp_path):
    write(tmp_path, "unlabeled")
    assert open_some(tmp_path, split="unlabeled").labels is None


def test_classes_are_matched_by_what_they_mean():
    named = {
        name: CIFAR10_CLASSES[number] if number >= 0 else None
        for name, number in zip(STL10_CLASSES, STL10_AS_CIFAR10, strict=True)
    }
    assert named.pop("car") == "automobile"
    assert named.pop("monkey") is None
    assert all(own == other for own, other in named.items())
    assert CIFAR10_CLASSES.index("frog") not in STL10_AS_CIFAR10


def test_as_cifar10_leaves_monkeys_out_and_resizes(tmp_path):
    write(tmp_path)
    source = open_some(tmp_path, "stl10-cifar10")
    assert source.labels.tolist() == [0, 2, 1, 3, 4, 5, 7, 8, 9]
    assert source.names == ["0", "1", "2", "3", "4", "5", "6", "8", "9"]
    assert source.class_names == CIFAR10_CLASSES
    read = source.read(torch.tensor([7]))
    assert read.shape == (1, 3, 32, 32)
    # Resizing keeps the mean of noise; the ninth image, not the eighth, was read.
    assert abs(read.float().mean() - IMAGES[8].mean()) < 1
    assert "800 monkeys left out" in find_dataset("stl10-cifar10").images


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_only_monkeys_leave_nothing(tmp_path):
    write(tmp_path, labels=[8] * 10)
    with pytest.raises(AcclimateError, match=r"all 10 images .* are monkeys"):
        open_dataset("stl10-cifar10", tmp_path, incomplete=True)


@pytest.mark.parametrize("name", ["stl10", "stl10-cifar10"])
@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_labels_out_of_range_are_named_as_in_the_file(tmp_path, name):
    write(tmp_path, labels=[0, 11, *range(1, 9)])
    with pytest.raises(AcclimateError, match=r"labels 1 to 10 .* 2 others: 0, 11"):
        open_dataset(name, tmp_path, incomplete=True)
    write(tmp_path, labels=[1, 2])
    with pytest.raises(AcclimateError, match="one label for each of 10 images"):
        open_dataset(name, tmp_path, incomplete=True)


def test_wrong_counts_and_cut_off_files_are_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(AcclimateError, match=r"expected 8,000 images in .*, got 10"):
        open_dataset("stl10", tmp_path)
    (tmp_path / "test_X.bin").write_bytes(bytes(27_648 + 1))
    with pytest.raises(AcclimateError, match=r"images of 27,648 bytes .* got 27,649"):
        open_dataset("stl10", tmp_path)


@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_another_class_list_is_refused(tmp_path):
    write(tmp_path)
    (tmp_path / "class_names.txt").write_text("cat dog")
    with pytest.raises(AcclimateError, match="got cat, dog"):
        open_dataset("stl10", tmp_path, incomplete=True)


def test_missing_parts(tmp_path):
    write(tmp_path)
    assert missing_parts("stl10", tmp_path) == ["train_X.bin", "train_y.bin", "unlabeled_X.bin"]
    assert missing_parts("stl10-cifar10", tmp_path) == ["train_X.bin", "train_y.bin"]
    with pytest.raises(AcclimateError, match=r"expected train_X\.bin(?s:.*)acoates/stl10"):
        open_dataset("stl10", tmp_path, split="train")
