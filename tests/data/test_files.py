"""A folder of image files: found, checked, kept or read again, labelled by its subfolders."""

from __future__ import annotations

import os
import resource
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from acclimate.data import ClassList, ImageSource, Preprocessing, Skipped, open_images
from acclimate.data.files import find_images
from acclimate.errors import AcclimateError, AcclimateWarning

SMALL = Preprocessing(size=(8, 8), mean=(0.5,) * 3, std=(0.5,) * 3)


def save(path: Path, value: int = 0, *, size: tuple[int, int] = (12, 10)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)
    return path


def open_quietly(root: Path, **options: object) -> ImageSource:
    return open_images(root, preprocessing=SMALL, progress=False, **options)


def everything(source: ImageSource) -> torch.Tensor:
    return source.read(torch.arange(len(source)))


def test_files_are_found_in_all_subfolders_sorted_whatever_their_case(tmp_path):
    for name in ["b.png", "a/z.JPG", "a/c/d.Tiff", "c.webp", "d.pgm"]:
        save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("hello")
    save(tmp_path / ".hidden.png")
    save(tmp_path / ".cache" / "x.png")
    source = open_quietly(tmp_path)
    assert list(source.names) == ["a/c/d.Tiff", "a/z.JPG", "b.png", "c.webp", "d.pgm"]
    assert len(source) == 5
    assert source.skipped == []


def test_images_of_all_sizes_are_read_by_index_as_uint8(tmp_path):
    for value in range(4):
        save(tmp_path / f"{value}.png", value * 10, size=(5 + value, 20 - value))
    images = open_quietly(tmp_path).read(torch.tensor([3, 1]))
    assert images.shape == (2, 3, 8, 8)
    assert images.dtype == torch.uint8
    assert images[:, 0, 0, 0].tolist() == [30, 10]


def test_a_folder_may_be_given_as_text(tmp_path):
    save(tmp_path / "a.png")
    assert len(open_images(str(tmp_path), preprocessing=SMALL, progress=False)) == 1


def test_kept_or_read_again_the_images_are_the_same(tmp_path):
    rng = np.random.default_rng(0)
    for index in range(5):
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(
            tmp_path / f"{index}.jpg"
        )
    (tmp_path / "2.jpg").write_bytes(b"broken")
    with pytest.warns(AcclimateWarning):
        kept = open_quietly(tmp_path)
    with pytest.warns(AcclimateWarning):
        again = open_quietly(tmp_path, cache=0)
    assert torch.equal(everything(kept), everything(again))
    assert kept.fingerprint() == again.fingerprint()


def test_kept_images_do_not_need_their_files_any_more(tmp_path):
    path = save(tmp_path / "a.png", 7)
    source = open_quietly(tmp_path)
    path.unlink()
    assert everything(source).unique().tolist() == [7]


def test_unreadable_files_are_left_out_with_one_warning_and_a_list(tmp_path):
    save(tmp_path / "a.png", 1)
    save(tmp_path / "e.png", 5)
    whole = save(tmp_path / "x.jpg", size=(200, 200)).read_bytes()
    (tmp_path / "x.jpg").unlink()
    (tmp_path / "b.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c.png").write_bytes(b"")
    (tmp_path / "d.gif").write_text("<html>")
    with pytest.warns(AcclimateWarning, match=r"3 of 5 images.*b\.jpg: truncated") as caught:
        source = open_quietly(tmp_path)
    assert len(caught) == 1
    assert list(source.names) == ["a.png", "e.png"]
    assert [item.name for item in source.skipped] == ["b.jpg", "c.png", "d.gif"]
    assert source.skipped[1:] == [Skipped("c.png", "empty file"), Skipped("d.gif", "not an image")]
    assert everything(source)[:, 0, 0, 0].tolist() == [1, 5]


def test_labels_stay_aligned_when_files_are_left_out(tmp_path):
    save(tmp_path / "cat" / "a.png")
    (tmp_path / "cat" / "b.png").write_bytes(b"broken")
    save(tmp_path / "dog" / "c.png")
    with pytest.warns(AcclimateWarning):
        source = open_quietly(tmp_path, classes=ClassList(("dog", "cat")))
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0]
    assert source.class_names == ("cat", "dog")


def test_given_labels_count_every_file_found(tmp_path):
    save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"broken")
    save(tmp_path / "c.png")
    with pytest.warns(AcclimateWarning):
        source = open_quietly(tmp_path, labels=[4, 5, 6])
    assert source.labels is not None
    assert source.labels.tolist() == [4, 6]
    with pytest.raises(AcclimateError, match="each of the 3 images"):
        open_quietly(tmp_path, labels=[4, 5])


def test_folders_named_by_index_are_labels_where_that_is_asked_for(tmp_path):
    save(tmp_path / "003" / "a.png")
    save(tmp_path / "011" / "a.png")
    labels = open_quietly(tmp_path, labels="index").labels
    assert labels is not None
    assert labels.tolist() == [3, 11]
    source = open_quietly(tmp_path)
    assert (source.labels, source.class_names) == (None, ("003", "011"))


def test_no_labels_are_taken_where_none_are_wanted(tmp_path):
    for folder in ("cat", "mouse"):  # without, an error: is the mouse a mistake?
        save(tmp_path / folder / "a.png")
    source = open_quietly(tmp_path, classes=ClassList(("cat", "dog")), labels="none")
    assert (source.labels, source.class_names, len(source)) == (None, None, 2)
    assert open_images(torch.zeros(2, 3, 4, 4), labels="none").labels is None


def test_labels_of_a_table(tmp_path):
    for name in ("a.png", "b.png", "mouse/c.png"):
        save(tmp_path / "photos" / name)
    (tmp_path / "labels.csv").write_text("file,class\na.png,dog\nc.png,cat\n")
    pets = ClassList(("cat", "dog"))
    source = open_quietly(tmp_path / "photos", classes=pets, labels=tmp_path / "labels.csv")
    assert source.labels.tolist() == [1, -1, 0]


def test_flat_folders_and_folders_by_date_are_unlabelled(tmp_path):
    save(tmp_path / "flat" / "a.png")
    assert open_quietly(tmp_path / "flat").labels is None
    save(tmp_path / "dated" / "2024-05" / "a.png")
    source = open_quietly(tmp_path / "dated", classes=ClassList(("cat", "dog")))
    assert source.labels is None
    assert source.class_names == ("2024-05",)


def test_everything_unreadable_is_an_error_with_reasons(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(AcclimateError, match=r"none of the 1 images.*a\.png: empty file"):
        open_quietly(tmp_path)


def test_a_missing_empty_or_foreign_folder_is_an_error(tmp_path):
    with pytest.raises(AcclimateError, match="expected a folder of images"):
        open_quietly(tmp_path / "nowhere")
    with pytest.raises(AcclimateError, match="no files at all"):
        open_quietly(tmp_path)
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(AcclimateError, match="only 1 other files"):
        open_quietly(tmp_path)
    with pytest.raises(AcclimateError, match=r"expected a folder.*got .*a\.txt"):
        open_quietly(tmp_path / "a.txt")


def test_a_folder_needs_preprocessing(tmp_path):
    save(tmp_path / "a.png")
    with pytest.raises(AcclimateError, match="preprocessing="):
        open_images(tmp_path)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"broken")])
def test_a_file_lost_or_broken_after_opening_is_named(tmp_path, harm):
    path = save(tmp_path / "a.png")
    source = open_quietly(tmp_path, cache=0)
    harm(path)
    with pytest.raises(AcclimateError, match=r"a\.png in .* could be read at opening"):
        everything(source)


def test_a_file_changed_after_opening_is_named(tmp_path):
    save(tmp_path / "a.png")
    path = save(tmp_path / "b.png", 1)
    source = open_quietly(tmp_path, cache=0)
    everything(source)
    save(path, 2)
    with pytest.raises(AcclimateError, match=r"b\.png in .* was changed since it was opened"):
        everything(source)
    save(path, 1)
    everything(source)


def test_the_fingerprint_follows_names_and_contents_not_times(tmp_path):
    path = save(tmp_path / "a.png", 1)
    before = open_quietly(tmp_path).fingerprint()
    os.utime(path, (0, 0))
    assert open_quietly(tmp_path).fingerprint() == before
    save(path, 2)
    assert open_quietly(tmp_path).fingerprint() != before
    save(path, 1)
    assert open_quietly(tmp_path).fingerprint() == before
    path.rename(tmp_path / "b.png")
    assert open_quietly(tmp_path).fingerprint() != before


def test_linked_folders_are_followed_but_not_in_a_ring(tmp_path):
    save(tmp_path / "real" / "a.png")
    root = tmp_path / "root"
    root.mkdir()
    (root / "cat").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "back").symlink_to(root)
    with pytest.warns(AcclimateWarning, match=r"cat/back: a link to a folder that is read already"):
        assert list(open_quietly(root).names) == ["cat/a.png"]


def test_a_lattice_of_linked_folders_is_read_once(tmp_path):
    for level in range(35):  # 2 ** 35 paths
        for name in ("a", "b"):
            (tmp_path / f"{level}").mkdir(exist_ok=True)
            (tmp_path / f"{level}" / name).symlink_to(tmp_path / f"{level + 1}")
    save(tmp_path / "35" / "deep.png")
    with pytest.warns(AcclimateWarning, match=r"35 of 36 images .* read already"):
        source = open_quietly(tmp_path / "0")
    assert [Path(name).name for name in source.names] == ["deep.png"]


def test_links_in_a_ring_are_skipped(tmp_path):
    save(tmp_path / "a.png")
    (tmp_path / "ring").symlink_to("ring")
    with pytest.warns(AcclimateWarning, match="ring: not an image"):
        assert list(open_quietly(tmp_path).names) == ["a.png"]


def test_a_folder_is_read_by_its_own_path_before_any_link_to_it(tmp_path):
    save(tmp_path / "b" / "1.png")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "b")
    with pytest.warns(AcclimateWarning, match="a/link"):
        assert list(open_quietly(tmp_path).names) == ["b/1.png"]


def test_pipes_and_devices_among_the_images_are_skipped_with_the_reason(tmp_path):
    save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    os.mkfifo(tmp_path / "c")
    (tmp_path / "d.png").symlink_to("/dev/zero")
    (tmp_path / "e.png").symlink_to("nowhere")
    with pytest.warns(AcclimateWarning, match=r"4 of 5 images .*b\.png: not a file but a pipe"):
        source = open_quietly(tmp_path)
    assert list(source.names) == ["a.png"]
    assert [item.name for item in source.skipped] == ["b.png", "d.png", "e.png", "c"]
    (tmp_path / "x.npy").symlink_to("/dev/zero")
    with pytest.raises(AcclimateError, match="expected a folder of images"):
        open_quietly(tmp_path / "x.npy")


def blank_png(width: int, height: int) -> bytes:
    """A grey PNG that is all there, of a few bytes for each million pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + check

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(width + 1)) for _ in range(height)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(13_300, 13_300), (1, 60_000)])
@pytest.mark.filterwarnings("ignore:Image size")
def test_an_image_of_too_many_pixels_is_skipped_before_it_is_decoded(tmp_path, width, height):
    save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(blank_png(width, height))
    shown = Preprocessing(size=(224, 224), resize=256, mean=(0.5,) * 3, std=(0.5,) * 3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.warns(AcclimateWarning, match=r"b\.png: too large .* at most 89"):
        open_images(tmp_path, preprocessing=shown, progress=False)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # kilobytes


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.jfif", "JPEG"), ("a.jpe", "JPEG"), ("a.jp2", "JPEG2000"), ("a.tga", "TGA"), ("a", "PNG"),
     ("IMG.0001", "JPEG"), ("a.unknown", "WEBP")],
)  # fmt: skip
def test_what_is_an_image_by_its_content_is_read(tmp_path, name, kind):
    save(tmp_path / "b.png")
    Image.new("RGB", (12, 10)).save(tmp_path / name, kind)
    assert sorted(open_quietly(tmp_path).names) == sorted([name, "b.png"])


def test_other_files_are_announced_and_named(tmp_path):
    save(tmp_path / "a.png")
    for name in ("README", "b.heic", "c.svg", "d.psd", "e.nef"):
        (tmp_path / name).write_bytes(b"x" * 100)
    for name in ("labels.csv", "notes.txt", "model.safetensors"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.warns(AcclimateWarning, match=r"5 of 6 images .*README: not an image"):
        source = open_quietly(tmp_path)
    assert [item.name for item in source.skipped] == ["README", "b.heic", "c.svg", "d.psd", "e.nef"]


def test_postscript_in_an_image_is_not_run(tmp_path):
    save(tmp_path / "a.png")
    Image.new("RGB", (12, 10)).save(tmp_path / "b.png", "EPS")
    with pytest.warns(AcclimateWarning, match=r"b\.png: not an image"):
        open_quietly(tmp_path)


def test_a_quick_opening_shows_no_progress_bar(tmp_path, capsys):
    save(tmp_path / "a.png")
    open_images(tmp_path, preprocessing=SMALL)
    assert capsys.readouterr() == ("", "")


def test_images_of_kinds_that_are_not_read_are_reported(tmp_path: Path) -> None:
    for name in ("one.HEIC", "two.heic", "three.avif", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    save(tmp_path / "four.png")
    with pytest.warns(AcclimateWarning, match=r"left out \(1 \.avif, 2 \.heic\)"):
        assert find_images(tmp_path) == ["four.png"]
