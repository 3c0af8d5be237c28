"""What a data set falls into, and what is refused before any of it is opened."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from acclimate.bench.shifts import dataset_parts, image_parts
from acclimate.data import Preprocessing, open_images, write_corrupted
from acclimate.data.corruptions import DEV, TEST, corrupt, frost_kind
from acclimate.errors import AcclimateError

SIZE = Preprocessing(size=(32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)
IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)


def source():
    return open_images(IMAGES, preprocessing=SIZE, labels=[0, 1, 2, 3])


@pytest.fixture
def cifar_c(tmp_path):
    write_corrupted(
        source(), tmp_path, preset="cifar", shifts=["fog", "frost", *DEV], progress=False
    )
    return tmp_path


def names(parts) -> list[str]:
    return [part.name for part in parts]


def test_clean_images_are_one_part():
    (part,) = image_parts(source(), [])
    assert part.name == "clean"
    assert part.open().labels.tolist() == [0, 1, 2, 3]


def test_corruptions_made_on_the_way():
    parts = image_parts(source(), ["cifar/fog:2@3", "cifar/snow", "cifar/snow:4", "cifar/fog:2"])
    snow = [f"snow:{severity}" for severity in range(1, 6)]
    assert names(parts) == ["fog:2@3", *snow, "fog:2"]
    got = parts[0].open().read(torch.arange(4)).permute(0, 2, 3, 1).numpy()
    np.testing.assert_array_equal(got, corrupt(IMAGES, "fog", 2, preset="cifar", seed=3))
    assert len(image_parts(source(), ["imagenet/test"])) == 75


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
        image_parts(source(), [word])


def test_one_preset_at_a_time():
    with pytest.raises(AcclimateError, match="one preset, got cifar and imagenet"):
        image_parts(source(), ["cifar/fog:2", "imagenet/fog:2"])


def test_a_damaged_part_shows_before_the_first_is_opened(cifar_c):
    images = np.load(cifar_c / "saturate.npy")
    np.save(cifar_c / "saturate.npy", images[:-5])
    with pytest.raises(AcclimateError, match=r"saturate.npy, got 5 times 3"):
        dataset_parts("cifar10-c", cifar_c, ["fog", "dev"], progress=False)


def test_parts_of_a_benchmark(cifar_c):
    parts = dataset_parts("cifar10-c", cifar_c, ["fog:3", "dev", "fog"], progress=False)
    assert names(parts)[:2] == ["fog:3", "speckle_noise:1"]
    assert len(parts) == len(set(names(parts))) == 25
    got = parts[0].open().read(torch.arange(4)).permute(0, 2, 3, 1).numpy()
    np.testing.assert_array_equal(got, corrupt(IMAGES, "fog", 3, preset="cifar"))


def test_our_own_frost_stands_in_under_its_own_name(cifar_c):
    (part,) = dataset_parts("cifar10-c", cifar_c, ["frost:1"], progress=False)
    assert part.name == f"{frost_kind()}:1"
    assert len(part.open()) == 4


def test_all_that_is_missing_is_named_at_once(cifar_c):
    with pytest.raises(AcclimateError, match=r"13 of the parts asked for .* gaussian_noise.npy"):
        dataset_parts("cifar10-c", cifar_c, progress=False)
    assert len(TEST) == 15


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fob"], "did you mean 'fog'"),
        (["fog:0"], "1, 2, 3, 4 or 5, got 'fog:0'"),
        (["cifar/fog:1"], "leave the preset out"),
    ],
)
def test_shifts_a_benchmark_has_not(words, said, cifar_c):
    with pytest.raises(AcclimateError, match=said):
        dataset_parts("cifar10-c", cifar_c, words, progress=False)


def test_domains_have_no_severities(tmp_path):
    with pytest.raises(AcclimateError, match="no severities, got 'sketch:2'"):
        dataset_parts("imagenet-d", tmp_path, ["sketch:2"], progress=False)
    with pytest.raises(AcclimateError, match="has no dev domains"):
        dataset_parts("imagenet-d", tmp_path, ["dev"], progress=False)
