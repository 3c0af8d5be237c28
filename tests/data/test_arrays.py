"""Images in arrays, tensors and numpy files."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from acclimate.data import ClassList, Preprocessing, open_images
from acclimate.data.arrays import ArraySource
from acclimate.errors import AcclimateError, AcclimateWarning

RGB8 = Preprocessing(size=(8, 8))
GREY8 = Preprocessing(size=(8, 8), mean=(0.5,), std=(0.5,))
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
FIRST = torch.tensor([0])


@pytest.mark.parametrize(
    "images",
    [
        IMAGES,
        IMAGES.transpose(0, 3, 1, 2),
        torch.from_numpy(IMAGES),
        torch.from_numpy(IMAGES).permute(0, 3, 1, 2),
    ],
)
def test_uint8_colour_in_either_order(images):
    source = open_images(images, preprocessing=RGB8)
    read = source.read(torch.tensor([4, 0]))
    assert read.dtype == torch.uint8
    assert read.is_contiguous()
    np.testing.assert_array_equal(read.numpy(), IMAGES[[4, 0]].transpose(0, 3, 1, 2))
    assert list(source.names) == ["0", "1", "2", "3", "4"]
    assert source.labels is None
    assert source.class_names is None
    assert source.preprocessing == RGB8


@pytest.mark.parametrize("images", [IMAGES[..., 0], IMAGES[..., :1], IMAGES[:, None, ..., 0]])
def test_uint8_grey_for_grey_and_colour_models(images):
    grey = open_images(images, preprocessing=GREY8).read(FIRST)
    np.testing.assert_array_equal(grey[0, 0].numpy(), IMAGES[0, ..., 0])
    colour = open_images(images, preprocessing=RGB8).read(FIRST)
    assert torch.equal(colour, grey.expand(1, 3, 8, 8))


def test_colour_for_a_grey_model_is_made_grey():
    read = open_images(IMAGES, preprocessing=GREY8).read(FIRST)
    np.testing.assert_array_equal(
        read[0, 0].numpy(), np.asarray(Image.fromarray(IMAGES[0]).convert("L"))
    )


def test_another_size_is_fitted_one_by_one():
    wanted = Preprocessing(size=(4, 6), resize=6)
    read = open_images(IMAGES, preprocessing=wanted).read(torch.tensor([2, 1]))
    expected = [wanted.fit(Image.fromarray(IMAGES[index])) for index in (2, 1)]
    np.testing.assert_array_equal(read.numpy(), np.stack(expected))


FITTED_BYTES = len(IMAGES) * 3 * 4 * 6


@pytest.mark.parametrize("cache", [None, 0, FITTED_BYTES])
def test_fitted_images_are_the_same_whether_kept_or_not(cache):
    wanted = Preprocessing(size=(4, 6), resize=6)
    source = ArraySource(IMAGES, preprocessing=wanted, cache=cache)
    every = np.stack([wanted.fit(Image.fromarray(image)) for image in IMAGES])
    for numbers in ([3, 1, 3], [4, 3, 2, 1, 0], [0, 0], []):
        read = source.read(torch.tensor(numbers, dtype=torch.int64))
        assert read.dtype == torch.uint8
        assert read.is_contiguous()
        np.testing.assert_array_equal(read.numpy(), every[numbers])
        read.zero_()  # theirs who read it: what is kept stays


@pytest.mark.parametrize(
    ("cache", "kept"), [(None, True), (FITTED_BYTES, True), (FITTED_BYTES - 1, False), (0, False)]
)
def test_images_are_fitted_once_if_all_of_them_can_be_kept(cache, kept):
    images = IMAGES.copy()
    source = ArraySource(images, preprocessing=Preprocessing(size=(4, 6)), cache=cache)
    before = source.read(FIRST)
    images[:] = 255 - images
    assert torch.equal(source.read(FIRST), before) == kept


def test_no_more_are_kept_once_others_took_the_memory(monkeypatch):
    free = [FITTED_BYTES]
    monkeypatch.setattr("acclimate.data.memory.cache_budget", lambda cache: free[0])
    images = IMAGES.copy()
    source = ArraySource(images, preprocessing=Preprocessing(size=(4, 6)))
    first, second = source.read(torch.tensor([0, 1]))
    free[0] -= 2 * FITTED_BYTES // 5 // 3  # what these two took of it is no reason to stop
    third = source.read(torch.tensor([2]))[0]
    free[0] = 0
    fourth = source.read(torch.tensor([3]))[0]
    images[:] = 255 - images
    assert torch.equal(source.read(torch.tensor([2, 0, 1])), torch.stack([third, first, second]))
    assert not torch.equal(source.read(torch.tensor([3]))[0], fourth)


def test_less_than_no_room_for_fitted_images_is_refused_at_opening():
    with pytest.raises(AcclimateError, match="cache >= 0 bytes, got -1"):
        ArraySource(IMAGES, preprocessing=Preprocessing(size=(4, 6)), cache=-1)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_floats_are_model_input_as_they_are(dtype):
    images = torch.randn(3, 3, 5, 7).to(dtype)
    source = open_images(images, preprocessing=RGB8)
    assert source.preprocessing is None
    read = source.read(torch.tensor([2, 0]))
    assert read.dtype == torch.float32
    assert torch.equal(read, images[[2, 0]].float())


def test_tensors_that_need_gradients_are_read():
    images = torch.randn(2, 3, 4, 4, requires_grad=True)
    assert not open_images(images).read(FIRST).requires_grad


def test_floats_that_look_like_bytes_are_warned_about():
    with pytest.warns(AcclimateWarning, match="range from 0 to 255, as unscaled pixels do"):
        open_images(np.linspace(0, 255, 48, dtype=np.float32).reshape(1, 3, 4, 4))


def test_an_open_source_is_returned_unchanged():
    source = open_images(torch.zeros(2, 3, 4, 4))
    assert open_images(source) is source


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_pixels_name_how_many_and_which(bad):
    images = torch.zeros(9, 3, 4, 4)
    images[[2, 7], 1, 0, 0] = bad
    with pytest.raises(AcclimateError, match=r"2 of 9 images have NaN.*first: 2, 7\)"):
        open_images(images)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((0, 8, 8, 3), np.uint8), "at least one image"),
        (np.zeros((2, 0, 8, 3), np.uint8), "with pixels"),
        (np.zeros((8, 8, 3), np.uint8), r"got 8×8×3; one image is images\[None\]"),
        (np.zeros((2, 8, 8, 4), np.uint8), "got 2×8×8×4"),
        (np.zeros(5, np.uint8), "got 5"),
        (np.zeros((2, 2, 3, 8, 8), np.uint8), "N×H×W×3"),
        (np.uint8(3)[...], "a scalar"),
        (np.zeros((2, 8, 8), np.float32), "N×C×H×W"),
        (np.zeros((2, 32, 32, 3), np.float32), "channels last"),
        (np.zeros((2, 8, 8, 3), np.int64), "got int64"),
        (np.array([None, "a"]), "got object"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.bool), "got bool"),
    ],
)
def test_arrays_that_are_no_images_are_refused(images, message):
    with pytest.raises(AcclimateError, match=message):
        open_images(images, preprocessing=RGB8)


def test_bytes_need_preprocessing():
    with pytest.raises(AcclimateError, match="pass preprocessing="):
        open_images(IMAGES)


def test_labels_are_checked_against_images_and_classes():
    labels = open_images(IMAGES, preprocessing=RGB8, labels=[0, 1, 2, -1, 0]).labels
    assert labels is not None
    assert labels.tolist() == [0, 1, 2, -1, 0]
    with pytest.raises(AcclimateError, match="each of the 5 images"):
        open_images(IMAGES, preprocessing=RGB8, labels=[0])
    with pytest.raises(AcclimateError, match=r"model with 2 classes.*got 2"):
        open_images(
            IMAGES, preprocessing=RGB8, labels=[0, 1, 2, 1, 0], classes=ClassList(("a", "b"))
        )


def test_npz_with_images_and_labels(tmp_path):
    np.savez(tmp_path / "set.npz", images=IMAGES, labels=np.arange(5), more=np.zeros(2))
    source = open_images(tmp_path / "set.npz", preprocessing=RGB8)
    assert source.labels is not None
    assert source.labels.tolist() == [0, 1, 2, 3, 4]
    assert source.fingerprint() == open_images(IMAGES, preprocessing=RGB8).fingerprint()


def test_npz_with_a_single_array_of_any_name(tmp_path):
    np.savez_compressed(tmp_path / "set.npz", x=IMAGES)
    source = open_images(str(tmp_path / "set.npz"), preprocessing=RGB8)
    assert (len(source), source.labels) == (5, None)


def test_npy_is_read_from_the_disk(tmp_path):
    np.save(tmp_path / "set.npy", IMAGES)
    source = open_images(tmp_path / "set.npy", preprocessing=RGB8, labels=np.arange(5))
    np.testing.assert_array_equal(
        source.read(torch.tensor([3]))[0].numpy(), IMAGES[3].transpose(2, 0, 1)
    )


@pytest.mark.parametrize("size", [(8, 8), (4, 4)])
def test_a_mapped_file_that_is_changed_is_noticed(tmp_path, size):
    np.save(tmp_path / "set.npy", IMAGES)
    source = open_images(tmp_path / "set.npy", preprocessing=replace(RGB8, size=size))
    source.read(torch.arange(2))
    np.save(tmp_path / "new.npy", IMAGES + 1)
    (tmp_path / "new.npy").rename(tmp_path / "set.npy")  # the images opened are mapped as ever
    source.read(torch.arange(2, 3))
    source = open_images(tmp_path / "set.npy", preprocessing=replace(RGB8, size=size))
    changed = np.load(tmp_path / "set.npy", mmap_mode="r+")
    changed[3] += 1
    changed.flush()
    os.utime(tmp_path / "set.npy")  # which a system may put off
    with pytest.raises(AcclimateError, match=r"set\.npy was changed since it was opened"):
        source.read(torch.arange(3, 5))


def test_a_mapped_file_that_is_touched_is_the_same(tmp_path):
    np.save(tmp_path / "set.npy", IMAGES)
    source = open_images(tmp_path / "set.npy", preprocessing=RGB8)
    source.fingerprint()
    os.utime(tmp_path / "set.npy", (1, 1))
    assert source.read(torch.arange(2)).shape == (2, *RGB8.shape)


def write_foreign_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.npz", lambda p: np.savez(p, a=IMAGES, b=IMAGES), "'images'.*got a, b"),
        ("a.npz", lambda p: np.savez(p), "got none"),
        ("a.npz", lambda p: p.write_bytes(b"PK not a zip"), "a.npz"),
        ("a.npz", lambda p: p.write_bytes(b""), "a.npz"),
        ("a.npz", write_foreign_zip, "expected numpy arrays in .*readme.txt is none"),
        ("a.npy", lambda p: p.write_bytes(b"hello"), "a.npy"),
        ("a.npy", lambda p: np.save(p, np.array([None])), "a.npy"),
        ("a.npz", lambda p: np.savez(p, images=np.array([None])), "Python objects"),
        ("a.npz", lambda p: None, "a.npz does not exist"),
    ],
)
def test_files_that_are_no_plain_arrays_are_refused(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(AcclimateError, match=message):
        open_images(tmp_path / name, preprocessing=RGB8)


@pytest.mark.parametrize("size", [-100, 200])
def test_a_truncated_npz_is_refused(tmp_path, size):
    path = tmp_path / "a.npz"
    np.savez(path, images=IMAGES)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(AcclimateError, match="readable numpy file"):
        open_images(path, preprocessing=RGB8)


def test_an_npz_that_would_not_fit_the_memory_is_not_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "zeros.npz"
    np.savez_compressed(path, images=np.zeros((4096, 16, 16), np.uint8))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr("acclimate.data.arrays.available_memory", lambda: 2**20)
    with pytest.raises(AcclimateError, match=r"at most 1,048,576 bytes .* got 1,048,704 unpacked"):
        open_images(path, preprocessing=RGB8)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_header_with_a_zero_byte_is_refused(tmp_path, name):
    write = np.save if name == "a.npy" else np.savez
    write(tmp_path / name, IMAGES)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content.replace(b"), }", b"), \0"))
    with pytest.raises(AcclimateError, match="readable numpy file"):
        open_images(tmp_path / name, preprocessing=RGB8)


def test_the_fingerprint_follows_the_content():
    images = torch.randn(4, 3, 4, 4)
    before = open_images(images.clone()).fingerprint()
    assert open_images(images.clone(), labels=[0, 1, 2, 3]).fingerprint() == before
    assert open_images(images.double()).fingerprint() != before
    assert open_images(images.flip(0)).fingerprint() != before
    images[3, 2, 1, 0] += 1
    assert open_images(images).fingerprint() != before
