"""Which shifts words ask for, and what is refused before any image is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from acclimate.bench.shifts import check_shifts, found_shift, job_shifts
from acclimate.data import Preprocessing, open_images, write_corrupted
from acclimate.data.benchmarks import find_dataset
from acclimate.data.corruptions import DEV, TEST, frost_kind
from acclimate.data.shift import Shift
from acclimate.errors import AcclimateError

SIZE = Preprocessing(size=(32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)
IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def cifar_c(tmp_path):
    source = open_images(IMAGES, preprocessing=SIZE, labels=[0, 1, 2, 3])
    write_corrupted(source, tmp_path, preset="cifar", shifts=["fog", "frost", *DEV], progress=False)
    return tmp_path


def check(root: Path, *words: str) -> None:
    shifts = [Shift.parse(str(each)) for each in job_shifts("cifar10-c", words)]
    check_shifts("cifar10-c", root, shifts, progress=False)


def test_images_of_your_own_are_shifted_on_the_fly_or_not_at_all():
    assert job_shifts("folder", []) == [None]
    words = ["cifar/fog:2@3", "clean", "cifar/snow", "cifar/snow:4", "cifar/fog:2"]
    snow = [f"cifar/snow:{severity}" for severity in range(1, 6)]
    assert job_shifts("folder", words) == ["cifar/fog:2@3", None, *snow, "cifar/fog:2"]
    assert len(job_shifts("folder", ["imagenet/test"])) == 75


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("fog:2", "such as imagenet/fog:2 or cifar/fog:2"),
        ("cifer/fog:2", "did you mean 'cifar'"),
        ("cifar/fob", "did you mean 'fog'"),
        ("cifar/fog:9", "1, 2, 3, 4 or 5"),
        ("cifar/fog:1@x", "another draw with @7"),
    ],
)
def test_shifts_that_cannot_be_made(word, said):
    with pytest.raises(AcclimateError, match=said):
        job_shifts("folder", [word])


def test_a_benchmark_has_its_own_shifts_each_once():
    shifts = job_shifts("cifar10-c", ["fog:3", "dev", "fog"])
    assert shifts[:2] == ["fog:3", "speckle_noise:1"]
    assert len(shifts) == len(set(shifts)) == 25
    assert job_shifts("imagenet-d", ["sketch"]) == ["sketch"]


@pytest.mark.parametrize(
    ("dataset", "word", "said"),
    [
        ("cifar10-c", "fob", "did you mean 'fog'"),
        ("cifar10-c", "fog:0", "1, 2, 3, 4 or 5, got 'fog:0'"),
        ("cifar10-c", "cifar/fog:1", "leave the preset out"),
        ("cifar10-c", "clean", "cifar10-c has no clean images"),
        ("imagenet-d", "sketch:2", "no severities, got 'sketch:2'"),
        ("imagenet-d", "dev", "has no dev domains"),
    ],
)
def test_shifts_a_benchmark_has_not(dataset, word, said):
    with pytest.raises(AcclimateError, match=said):
        job_shifts(dataset, [word])


def test_a_damaged_part_shows_before_the_first_is_opened(cifar_c):
    check(cifar_c, "fog", "dev")
    images = np.load(cifar_c / "saturate.npy")
    np.save(cifar_c / "saturate.npy", images[:-5])
    with pytest.raises(AcclimateError, match=r"saturate.npy, got 5 times 3"):
        check(cifar_c, "fog", "dev")


def test_our_own_frost_stands_in_under_its_own_name(cifar_c):
    frost, fog = Shift.parse("frost:1"), Shift.parse("fog:1")
    record = find_dataset("cifar10-c")
    assert str(found_shift(record, cifar_c, frost)) == f"{frost_kind()}:1"
    assert found_shift(record, cifar_c, fog) == fog
    check(cifar_c, "frost:1")


def test_all_that_is_missing_is_named_at_once(cifar_c):
    with pytest.raises(AcclimateError, match=r"13 of the parts asked for .* gaussian_noise.npy"):
        check(cifar_c, "test")
    assert len(TEST) == 15
