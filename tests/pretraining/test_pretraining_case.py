"""The data of a training: which pictures are learnt from, which are scored."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from acclimate.data import Preprocessing, ShiftedSource, open_dataset
from acclimate.data.shift import Shift
from acclimate.errors import AcclimateError
from acclimate.pretraining import open_case

RECORD = Preprocessing(size=(32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)
pytestmark = pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    for name, shape, count in (("cifar10", (32, 32, 3), 30), ("mnist", (28, 28), 20)):
        for split in ("train", "test"):
            images = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
            np.savez(tmp_path / f"{name}-{split}.npz", images=images, labels=np.arange(count) % 10)
    return tmp_path


def case(root, **options):
    common = {"preprocessing": RECORD, "incomplete": True, "progress": False}
    return open_case("cifar10", root, **common, **options)


def test_a_source_alone(root):
    alone = case(root)
    assert alone.target_pictures("cpu") is None
    assert list(alone.scored) == ["source"]
    assert alone.identity()["target"] is None


def test_the_target_is_the_other_data_set(root):
    pictures = case(root, target="mnist").target_pictures("cpu")
    assert pictures.shape == (20, 3, 32, 32)


def test_shifts_take_turns_and_each_picture_keeps_its_draw(root):
    shifts = ["cifar/gaussian_noise:3", "cifar/contrast:5"]
    pictures = case(root, target="cifar10", target_shifts=shifts).target_pictures("cpu")
    clean = open_dataset(
        "cifar10", root, split="train", preprocessing=RECORD, incomplete=True, progress=False
    )
    expected = [
        ShiftedSource(clean, Shift.parse(shift)).read(torch.arange(turn, 30, 2))
        for turn, shift in enumerate(shifts)
    ]
    assert torch.equal(pictures, torch.cat(expected))


def test_another_target_is_another_case(root):
    several = [case(root), case(root, target="mnist"), case(root, target="cifar10")]
    several.append(case(root, target="cifar10", target_shifts=["cifar/contrast:5"]))
    assert len({each.identity()["target"] for each in several}) == 4


def test_a_shift_without_a_target(root):
    with pytest.raises(AcclimateError, match="needs a target"):
        case(root, target_shifts=["cifar/fog:3"])
