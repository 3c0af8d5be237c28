"""MNIST-M, as published and made anew from digits and photos."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from acclimate.data.benchmarks import find_dataset, missing_parts, open_dataset
from acclimate.data.benchmarks.mnist_m import build_mnist_m
from acclimate.errors import AcclimateError, AcclimateWarning

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
DIGITS = RANDOM.integers(0, 256, (5, 28, 28), dtype=np.uint8)
PHOTOS = [
    RANDOM.integers(0, 256, (40, 60, 3), dtype=np.uint8),
    RANDOM.integers(0, 256, (28, 28, 3), dtype=np.uint8),
]


def write(root: Path, text: str = "00000002.png 7\n00000000.png 1\n00000001.png 0\n") -> None:
    (root / "mnist_m_test").mkdir(parents=True)
    for number, image in enumerate(IMAGES):
        Image.fromarray(image).save(root / f"mnist_m_test/0000000{number}.png")
    (root / "mnist_m_test_labels.txt").write_text(text)


def open_some(root: Path):
    with pytest.warns(AcclimateWarning, match="results will not compare"):
        return open_dataset("mnist-m", root, incomplete=True)


@pytest.mark.parametrize("folder", [".", "mnist_m"])
def test_the_published_folder_in_the_order_of_its_list(tmp_path, folder):
    write(tmp_path / folder)
    source = open_some(tmp_path)
    assert source.names == ["00000002.png", "00000000.png", "00000001.png"]
    assert source.labels.tolist() == [7, 1, 0]
    read = source.read(torch.arange(3)).numpy()
    np.testing.assert_array_equal(read, IMAGES[[2, 0, 1]].transpose(0, 3, 1, 2))
    assert missing_parts("mnist-m", tmp_path) == ["mnist_m_train_labels.txt", "mnist_m_train/"]


def test_counts_and_missing_images_are_named_before_decoding(tmp_path):
    write(tmp_path)
    with pytest.raises(AcclimateError, match=r"expected 9,001 or 10,000 images in .*, got 3"):
        open_dataset("mnist-m", tmp_path)
    listed = "".join(f"{number:08}.png {number % 10}\n" for number in range(9001))
    (tmp_path / "mnist_m_test_labels.txt").write_text(listed)
    with pytest.raises(AcclimateError, match=r"8,998 of 9,001 images .*00000003\.png"):
        open_dataset("mnist-m", tmp_path)
    assert len(open_some(tmp_path)) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("00000000.png 10\n", "line 1 .* got '00000000.png 10'"),
        ("00000000.png 1\n00000001.png\n", "line 2"),
        ("00000000.png 1\n00000000.png 1\n", "listed again"),
        ("elsewhere.png 1\n", "found none"),
        ("", "got none"),
    ],
)
@pytest.mark.filterwarnings("ignore::acclimate.errors.AcclimateWarning")
def test_a_list_that_is_wrong(tmp_path, text, message):
    write(tmp_path, text)
    with pytest.raises(AcclimateError, match=message):
        open_dataset("mnist-m", tmp_path, incomplete=True)


def test_what_was_built_can_be_opened(tmp_path):
    images = np.resize(build_mnist_m(DIGITS, PHOTOS[:1]), (10_000, 32, 32, 3))
    np.savez(tmp_path / "mnist-m-test.npz", images=images, labels=np.arange(10_000) % 10)
    source = open_dataset("mnist-m", tmp_path)
    assert source.read(torch.tensor([0])).shape == (1, 3, 32, 32)


def test_a_built_image_is_a_piece_of_a_photo_minus_the_digit():
    built = build_mnist_m(DIGITS, PHOTOS[:1], seed=3, margin=0, black_and_white=False)
    assert built.shape == (5, 28, 28, 3)
    assert built.dtype == np.uint8
    photo = PHOTOS[0].astype(int)
    for digit, image in zip(DIGITS, built, strict=True):
        pieces = [
            np.abs(photo[top : top + 28, left : left + 28] - digit[:, :, None].astype(int))
            for top in range(13)
            for left in range(33)
        ]
        assert any(np.array_equal(piece, image) for piece in pieces)


def test_as_published_any_ink_is_full_ink_in_the_middle_of_32_pixels():
    digits = np.zeros((1, 28, 28), np.uint8)
    digits[0, 3, 5] = 1
    photo = np.full((32, 32, 3), 100, np.uint8)
    expected = photo.copy()
    expected[5, 7] = 155
    np.testing.assert_array_equal(build_mnist_m(digits, [photo])[0], expected)


def test_building_depends_on_the_seed_and_the_index_alone():
    first = build_mnist_m(DIGITS, PHOTOS, seed=1, margin=0)
    np.testing.assert_array_equal(build_mnist_m(DIGITS[:2], PHOTOS, seed=1, margin=0), first[:2])
    assert not np.array_equal(build_mnist_m(DIGITS, PHOTOS, seed=2, margin=0), first)


def test_photos_from_a_folder_are_the_same_as_arrays(tmp_path):
    (tmp_path / "below").mkdir()
    Image.fromarray(PHOTOS[0]).save(tmp_path / "a.png")
    Image.fromarray(PHOTOS[1]).save(tmp_path / "below/b.png")
    np.testing.assert_array_equal(
        build_mnist_m(DIGITS, tmp_path, seed=4, margin=0),
        build_mnist_m(DIGITS, PHOTOS, seed=4, margin=0),
    )


def test_grey_photos_have_three_equal_channels():
    built = build_mnist_m(DIGITS * 0, [PHOTOS[1][:, :, 0]], margin=0)
    np.testing.assert_array_equal(built[0], np.repeat(PHOTOS[1][:, :, :1], 3, axis=2))


def test_every_place_of_a_photo_can_be_taken():
    photo = np.arange(29 * 29, dtype=np.uint16).reshape(29, 29).astype(np.uint8)
    corners = build_mnist_m(np.zeros((60, 28, 28), np.uint8), [photo], margin=0)[:, 0, 0, 0]
    assert set(corners.tolist()) == {0, 1, 29, 30}


@pytest.mark.parametrize(
    ("digits", "photos", "message"),
    [
        (DIGITS.astype(float), PHOTOS, "digits as uint8"),
        (DIGITS[0], PHOTOS, "got uint8 28×28"),
        (DIGITS, [], "at least one photo"),
        (DIGITS, [PHOTOS[0][:31]], "at least 32×32 pixels, photo 0 has 31×60×3"),
        (DIGITS, [PHOTOS[0].astype(float)], "uint8 H×W×3"),
        (DIGITS, "nowhere", "there is no nowhere"),
    ],
)
def test_what_cannot_be_built(digits, photos, message):
    with pytest.raises(AcclimateError, match=message):
        build_mnist_m(digits, photos)


def test_a_margin_below_zero():
    with pytest.raises(AcclimateError, match="expected a margin >= 0, got -1"):
        build_mnist_m(DIGITS, PHOTOS, margin=-1)


def test_a_broken_photo_is_named(tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no photo")
    with pytest.raises(AcclimateError, match=r"broken\.jpg cannot be read"):
        build_mnist_m(DIGITS, tmp_path)


def test_what_the_record_tells_to_type_works():
    assert "acclimate.data.benchmarks.build_mnist_m" in find_dataset("mnist-m").get
    code = "import acclimate; acclimate.data.benchmarks.build_mnist_m"
    subprocess.run([sys.executable, "-c", code], check=True)
