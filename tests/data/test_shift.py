"""Shifts: their names, and clean sources seen through them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from acclimate.data import Preprocessing, Shift, ShiftedSource, open_images, write_corrupted
from acclimate.data.corruptions import corrupt
from acclimate.data.shifted import made_shift
from acclimate.errors import AcclimateError

SIZE = Preprocessing(size=(16, 12))
IMAGES = np.random.default_rng(0).integers(0, 256, (10, 16, 12, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


def clean():
    return open_images(IMAGES, preprocessing=SIZE, labels=LABELS)


def test_a_shift_is_one_word():
    shift = Shift.parse(" cifar/snow:5@12 ")
    assert shift == Shift(preset="cifar", name="snow", severity=5, seed=12)
    assert Shift.parse(str(shift)) == shift
    assert str(Shift.parse("imagenet/fog:1@0")) == "imagenet/fog:1"


def test_frost_says_whose_it_is(monkeypatch):
    place = "acclimate.data.corruptions.frost.frost_kind"
    monkeypatch.setattr(place, lambda: "frost-procedural")
    assert str(made_shift("imagenet/frost:2")) == "imagenet/frost-procedural:2"
    assert made_shift("imagenet/frost-procedural:2") == made_shift("imagenet/frost:2")
    monkeypatch.setattr(place, lambda: "frost")
    assert str(made_shift("imagenet/frost:2")) == "imagenet/frost:2"
    with pytest.raises(AcclimateError, match="unknown corruption 'frost-procedural'"):
        made_shift("imagenet/frost-procedural:2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fog:3", "PRESET/NAME:SEVERITY"),
        ("imagenet/fog", "PRESET/NAME:SEVERITY"),
        ("imagenet/fog:x", "PRESET/NAME:SEVERITY"),
        ("imagenet/fog:3@-1", "PRESET/NAME:SEVERITY"),
        ("imagenet/fog:0", "severity of 1, 2, 3, 4 or 5, got 'imagenet/fog:0'"),
        ("imagenet/fob:3", "did you mean 'fog'"),
        ("imagnet/fog:3", "did you mean 'imagenet'"),
    ],
)
def test_words_that_are_no_shift(text, said):
    with pytest.raises(AcclimateError, match=said):
        open_images("nowhere at all", shift=text)


def test_the_same_pictures_as_corrupt_makes_in_any_order_and_from_memory():
    want = corrupt(IMAGES, "glass_blur", 2, preset="cifar", seed=4)
    source = open_images(
        IMAGES, preprocessing=SIZE, labels=LABELS, shift="cifar/glass_blur:2@4", cache=10**6
    )
    order = torch.tensor([7, 0, 3, 3, 9])
    for _ in range(2):  # the second time from memory
        got = source.read(order).permute(0, 2, 3, 1).numpy()
        np.testing.assert_array_equal(got, want[order])
    unkept = ShiftedSource(clean(), Shift.parse("cifar/glass_blur:2@4"), cache=0)
    np.testing.assert_array_equal(unkept.read(order).permute(0, 2, 3, 1).numpy(), want[order])


def test_labels_names_and_preprocessing_stay():
    source = ShiftedSource(clean(), Shift.parse("imagenet/contrast:5"))
    assert source.labels.tolist() == LABELS
    assert source.names == clean().names
    assert source.preprocessing == SIZE


def test_fingerprints_tell_shifts_apart():
    words = ["cifar/fog:1", "cifar/fog:2", "imagenet/fog:1", "cifar/snow:1", "cifar/fog:1@1"]
    marks = {open_images(clean(), shift=word).fingerprint() for word in words}
    assert len(marks | {clean().fingerprint()}) == 6
    assert open_images(clean(), shift=words[0]).fingerprint() in marks


def test_model_input_cannot_be_corrupted_any_more():
    floats = open_images(torch.rand(4, 3, 8, 8))
    with pytest.raises(AcclimateError, match="before they are scaled"):
        open_images(floats, shift="cifar/fog:1")


@pytest.mark.parametrize("name", ["fog", "jpeg_compression"])
def test_seen_through_imagenet_equals_what_is_stored_and_read_back(name, tmp_path):
    write_corrupted(
        clean(), tmp_path / "c", preset="imagenet", shifts=[f"{name}:3"], seed=2, progress=False
    )
    stored = open_images(tmp_path / "c" / name / "3", preprocessing=SIZE, labels="index")
    lazy = open_images(clean(), shift=f"imagenet/{name}:3@2")
    # By label and then by number, as the folders are.
    order = torch.tensor([0, 5, 1, 6, 2, 7, 3, 8, 4, 9])
    assert torch.equal(stored.read(torch.arange(10)), lazy.read(order))
    assert stored.labels.tolist() == lazy.labels[order].tolist()


def test_seen_through_cifar_equals_what_is_stored(tmp_path):
    write_corrupted(clean(), tmp_path / "c", preset="cifar", shifts=["snow"], progress=False)
    stored = np.load(tmp_path / "c" / "snow.npy")
    for severity in range(1, 6):
        lazy = open_images(clean(), shift=f"cifar/snow:{severity}").read(torch.arange(10))
        rows = stored[(severity - 1) * 10 : severity * 10]
        np.testing.assert_array_equal(lazy.permute(0, 2, 3, 1).numpy(), rows)
