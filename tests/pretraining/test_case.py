"""The data of a training: which images are learnt from, which are scored."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from acclimate.data import Preprocessing, ShiftedSource, open_dataset
from acclimate.data.arrays import ArraySource
from acclimate.data.benchmarks.cifar import CIFAR10_CLASSES
from acclimate.data.benchmarks.stl10 import STL10_CLASSES
from acclimate.data.shift import Shift
from acclimate.errors import AcclimateError
from acclimate.pretraining import open_case
from acclimate.pretraining.data import check_same_classes

RECORD = Preprocessing(size=(32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)
pytestmark = pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    sizes = {"cifar10": (32, 32, 3), "mnist": (28, 28), "mnist-m": (32, 32, 3), "usps": (16, 16)}
    for name, shape in sizes.items():
        count = 30 if name == "cifar10" else 20
        for split in ("train", "test"):
            images = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
            np.savez(tmp_path / f"{name}-{split}.npz", images=images, labels=np.arange(count) % 10)
    return tmp_path


def case(root, dataset="cifar10", **options):
    common = {"preprocessing": RECORD, "incomplete": True, "progress": False}
    return open_case(dataset, root, **common, **options)


def test_a_source_alone(root):
    alone = case(root)
    assert alone.target_images("cpu") is None
    assert list(alone.scored) == ["source"]
    assert alone.identity()["target"] is None


def test_the_target_is_the_other_data_set(root):
    images = case(root, "mnist", target="mnist-m").target_images("cpu")
    assert images.shape == (20, 3, 32, 32)


def test_a_target_for_scoring_alone_is_not_read(root):
    (root / "mnist-m-train.npz").unlink()
    scored = case(root, "mnist", target="mnist-m", learnt_from=False)
    assert list(scored.scored) == ["source", "target"]
    assert scored.target_images("cpu") is None
    assert scored.identity()["target"] is None


@pytest.mark.parametrize("learnt_from", [True, False])
def test_a_target_of_other_classes(root, learnt_from):
    message = "classes of mnist, got cifar10 .class 0 is '0' in mnist and 'airplane' in cifar10"
    with pytest.raises(AcclimateError, match=message):
        case(root, "mnist", target="cifar10", learnt_from=learnt_from)


def source(names):
    images = np.zeros((4, 8, 8, 3), np.uint8)
    return ArraySource(images, preprocessing=RECORD, class_names=names)


def test_classes_in_another_order_are_other_classes():
    cifar10, stl10 = source(CIFAR10_CLASSES), source(STL10_CLASSES)
    with pytest.raises(AcclimateError, match="use --target stl10-cifar10, which has them"):
        check_same_classes("cifar10", cifar10, "stl10", stl10)
    with pytest.raises(AcclimateError, match="use --dataset stl10-cifar10, which has those"):
        check_same_classes("stl10", stl10, "cifar10", cifar10)
    with pytest.raises(AcclimateError, match="10 classes and 9"):
        check_same_classes("a", cifar10, "b", source(CIFAR10_CLASSES[:9]))
    check_same_classes("cifar10", cifar10, "stl10-cifar10", source(CIFAR10_CLASSES))
    check_same_classes("cifar10", cifar10, "images", source(None))


def test_shifts_take_turns_and_each_picture_keeps_its_draw(root):
    shifts = ["cifar/gaussian_noise:3", "cifar/contrast:5"]
    images = case(root, target="cifar10", target_shifts=shifts).target_images("cpu")
    clean = open_dataset(
        "cifar10", root, split="train", preprocessing=RECORD, incomplete=True, progress=False
    )
    expected = [
        ShiftedSource(clean, Shift.parse(shift)).read(torch.arange(turn, 30, 2))
        for turn, shift in enumerate(shifts)
    ]
    assert torch.equal(images, torch.cat(expected))


def test_another_target_is_another_case(root):
    several = [case(root, "mnist", target=target) for target in (None, "mnist-m", "usps")]
    several.append(case(root, "mnist", target="mnist-m", target_shifts=["cifar/contrast:5"]))
    assert len({each.identity()["target"] for each in several}) == 4


def test_a_shift_without_a_target(root):
    with pytest.raises(AcclimateError, match="needs a target"):
        case(root, target_shifts=["cifar/fog:3"])
