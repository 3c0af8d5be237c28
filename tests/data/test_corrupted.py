"""Corrupted sets on disk: layouts, manifest, going on, and what is refused."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from acclimate.data import Preprocessing, open_dataset, open_images, write_corrupted
from acclimate.data.corrupted import choose_shifts
from acclimate.data.corruptions import DEV, TEST, constants, corrupt, corrupt_indexed
from acclimate.errors import AcclimateError
from acclimate.lock import claimed

SIZE = Preprocessing(size=(32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)
IMAGES = np.random.default_rng(0).integers(0, 256, (7, 32, 32, 3), dtype=np.uint8)
LABELS = [3, 1, 2, 3, 9, 0, 1]


def source(count=7, **options):
    options = {"labels": LABELS[:count], **options}
    return open_images(IMAGES[:count], preprocessing=SIZE, **options)


def write(out, *shifts, preset="cifar", data=None, **options):
    options = {"progress": False, **options}
    return write_corrupted(data or source(), out, preset=preset, shifts=shifts, **options)


def files(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


# Which ones.


def test_words_for_many():
    assert list(choose_shifts(["all"])) == [*TEST, *DEV]
    assert list(choose_shifts(["dev"])) == list(DEV)
    assert choose_shifts(["test:2", "fog"])["fog"] == (1, 2, 3, 4, 5)
    assert choose_shifts(["test:2", "fog"])["snow"] == (2,)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "at least one shift"),
        (["fob"], "did you mean 'fog'"),
        (["fog:6"], "1, 2, 3, 4 or 5, got 'fog:6'"),
        (["fog:"], "got 'fog:'"),
        (["fog:1.0"], "got 'fog:1.0'"),
    ],
)
def test_words_for_none(words, message):
    with pytest.raises(AcclimateError, match=message):
        choose_shifts(words)


# CIFAR-10-C's layout.


def test_arrays_of_five_severities_that_the_loader_opens(tmp_path):
    assert write(tmp_path / "c", "fog", "saturate", seed=3).made == 70
    assert files(tmp_path / "c") == ["fog.npy", "labels.npy", "manifest.json", "saturate.npy"]
    stored = np.load(tmp_path / "c" / "fog.npy")
    assert stored.shape == (35, 32, 32, 3)
    for severity in range(1, 6):
        rows = stored[(severity - 1) * 7 : severity * 7]
        np.testing.assert_array_equal(
            rows, corrupt(IMAGES, "fog", severity, preset="cifar", seed=3)
        )
    opened = open_dataset("cifar10-c", tmp_path / "c", shift="fog", severity=4, progress=False)
    np.testing.assert_array_equal(
        opened.read(torch.arange(7)).permute(0, 2, 3, 1).numpy(), stored[21:28]
    )
    assert opened.labels.tolist() == LABELS


def test_single_severities_can_be_used_as_they_are(tmp_path):
    write(tmp_path / "c", "fog:3", "fog:5")
    assert files(tmp_path / "c") == ["fog-3.npz", "fog-5.npz", "manifest.json"]
    opened = open_images(tmp_path / "c" / "fog-3.npz", preprocessing=SIZE)
    want = corrupt(IMAGES, "fog", 3, preset="cifar")
    np.testing.assert_array_equal(opened.read(torch.arange(7)).permute(0, 2, 3, 1).numpy(), want)
    assert opened.labels.tolist() == LABELS


def test_without_labels_there_are_none(tmp_path):
    write(tmp_path / "c", "fog", "snow:1", data=source(labels=None))
    assert files(tmp_path / "c") == ["fog.npy", "manifest.json", "snow-1.npz"]
    assert np.load(tmp_path / "c" / "snow-1.npz").files == ["images"]


def test_the_number_of_workers_changes_nothing(tmp_path):
    for workers in (1, 3):
        write(tmp_path / str(workers), "glass_blur", workers=workers)
    one, three = (np.load(tmp_path / n / "glass_blur.npy") for n in ("1", "3"))
    np.testing.assert_array_equal(one, three)


# ImageNet-C's layout.


def photo_folder(root: Path) -> Path:
    for name in ("n01440764/b.png", "n01440764/a b.jpg", "n01443537/ä.png", "n01443537/c.jpeg"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(IMAGES[len(name) % 7]).resize((50, 40)).save(path)
    return root


def test_a_tree_of_jpeg_files_that_the_loader_opens(tmp_path):
    photos = open_images(photo_folder(tmp_path / "p"), preprocessing=SIZE)
    write(tmp_path / "c", "fog:2", preset="imagenet", data=photos)
    assert files(tmp_path / "c" / "fog" / "2") == [
        "n01440764/a b.JPEG",
        "n01440764/b.JPEG",
        "n01443537/c.JPEG",
        "n01443537/ä.JPEG",
    ]
    with Image.open(tmp_path / "c/fog/2/n01440764/b.JPEG") as image:
        assert image.size == (32, 32)
        again = Image.new("RGB", (8, 8))
        again.save(tmp_path / "q.jpg", quality=85)
        with Image.open(tmp_path / "q.jpg") as other:
            assert image.quantization == other.quantization
    opened = open_dataset(
        "imagenet-c",
        tmp_path / "c",
        shift="fog",
        severity=2,
        preprocessing=SIZE,
        progress=False,
    )
    assert opened.labels.tolist() == [0, 0, 1, 1]


def test_arrays_become_files_by_index_in_folders_of_their_labels(tmp_path):
    write(tmp_path / "c", "contrast:1", preset="imagenet", data=source(3))
    assert files(tmp_path / "c/contrast/1") == ["1/1.JPEG", "2/2.JPEG", "3/0.JPEG"]


# The manifest, and going on.


def test_the_manifest_records_how_it_was_made(tmp_path):
    write(tmp_path / "c", "fog", "frost:1", seed=5)
    record = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert (record["preset"], record["seed"], record["images"]) == ("cifar", 5, 7)
    assert record["constants"]["fog"]["4"] == constants("fog", 4, preset="cifar")
    frost = next(name for name in record["finished"] if name.startswith("frost"))
    assert record["finished"] == {"fog": [1, 2, 3, 4, 5], frost: [1]}
    assert record["source"] == source().fingerprint()


def test_more_can_be_added_and_what_is_there_is_kept(tmp_path):
    write(tmp_path / "c", "fog")
    before = (tmp_path / "c" / "fog.npy").stat().st_mtime_ns
    again = write(tmp_path / "c", "fog", "snow")
    assert (again.made, again.kept) == (35, 35)
    assert (tmp_path / "c" / "fog.npy").stat().st_mtime_ns == before


@pytest.mark.parametrize("preset", ["cifar", "imagenet"])
def test_a_run_that_failed_half_way_resumes(preset, tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    write(whole, "glass_blur", preset=preset)
    real = corrupt_indexed
    calls = []

    def failing(images, indices, *args, **options):
        calls.append(len(indices))
        if len(calls) == 8:
            raise OSError(28, "No space left on device")
        return real(images, indices, *args, **options)

    monkeypatch.setattr("acclimate.data.corrupted.corrupt_indexed", failing)
    with pytest.raises(AcclimateError, match=r"No space left.*same call resumes"):
        write(broken, "glass_blur", preset=preset, workers=3)
    monkeypatch.setattr("acclimate.data.corrupted.corrupt_indexed", real)
    again = write(broken, "glass_blur", preset=preset)
    assert 0 < again.made < 35
    assert again.made + again.kept == 35
    assert files(broken) == files(whole)
    for name in files(whole):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "made with seed 0, now it is 1"),
        ({"preset": "imagenet"}, "made with preset cifar, now it is imagenet"),
        ({"data": 6}, "made with number of images 7, now it is 6"),
        ({"labels": [9] * 7}, "made with labels"),
        ({"labels": None}, r"made with labels .* now it is None"),
    ],
)
def test_another_set_is_not_mixed_in(change, message, tmp_path):
    write(tmp_path / "c", "fog")
    before = files(tmp_path / "c")
    if "data" in change:
        change = {"data": source(change["data"])}
    if "labels" in change:
        change = {"data": source(labels=change["labels"])}
    with pytest.raises(AcclimateError, match=message):
        write(tmp_path / "c", "snow", **change)
    assert files(tmp_path / "c") == before


@pytest.mark.parametrize("order", [("fog:3", "fog"), ("fog", "fog:3")])
def test_single_severities_and_whole_arrays_are_two_things(order, tmp_path):
    for shift in order:
        write(tmp_path, shift)
    assert files(tmp_path) == ["fog-3.npz", "fog.npy", "labels.npy", "manifest.json"]
    again = write(tmp_path, "fog")
    assert (again.made, again.kept) == (0, 35)


@pytest.mark.parametrize("preset", ["cifar", "imagenet"])
def test_what_was_taken_away_is_made_again(preset, tmp_path):
    write(tmp_path, "fog", preset=preset)
    gone = tmp_path / ("fog.npy" if preset == "cifar" else "fog/2/1/1.JPEG")
    before = gone.read_bytes()
    gone.unlink()
    assert write(tmp_path, "fog", preset=preset).made == (35 if preset == "cifar" else 1)
    assert gone.read_bytes() == before


@pytest.mark.parametrize("damage", ["no part", "empty part", "no rows", "short rows"])
def test_a_damaged_array_under_construction_is_begun_anew(damage, tmp_path):
    write(tmp_path, "fog")
    whole = (tmp_path / "fog.npy").read_bytes()
    part, rows = tmp_path / ".fog.npy.part", tmp_path / ".fog.npy.rows"
    (tmp_path / "fog.npy").rename(part)
    np.save(rows.open("wb"), np.ones(35, np.uint8))
    if damage.startswith("no"):
        (part if "part" in damage else rows).unlink()
    else:
        (part if "part" in damage else rows).write_bytes(b"" if "part" in damage else b"\x93NUM")
    assert write(tmp_path, "fog").made == 35
    assert (tmp_path / "fog.npy").read_bytes() == whole
    assert not part.exists()
    assert not rows.exists()


def test_no_two_images_share_a_file(tmp_path):
    for name in ("a.png", "a.jpg", "a.png.png", "A.png"):
        Image.fromarray(IMAGES[0]).save(tmp_path / name)
    data = open_images(tmp_path, preprocessing=SIZE)
    written = write(tmp_path.parent / "made", "fog:1", preset="imagenet", data=data)
    assert written.made == 4
    assert len(files(tmp_path.parent / "made" / "fog" / "1")) == 4


def test_class_folders_become_indices_for_arrays(tmp_path):
    for index, name in enumerate(("dog/1.png", "cat/2.png", "dog/3.png")):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(IMAGES[index]).save(path)
    data = open_images(tmp_path / "photos", preprocessing=SIZE)
    write(tmp_path / "c", "fog", data=data)
    assert np.load(tmp_path / "c" / "labels.npy")[:3].tolist() == [0, 1, 1]
    assert json.loads((tmp_path / "c/manifest.json").read_text())["classes"] == ["cat", "dog"]


def test_what_has_no_label_lies_in_no_class_folder(tmp_path):
    data = source(3, labels=[4, -1, 4])
    write(tmp_path / "c", "fog:1", preset="imagenet", data=data)
    assert files(tmp_path / "c/fog/1") == ["1.JPEG", "4/0.JPEG", "4/2.JPEG"]
    opened = open_images(tmp_path / "c/fog/1", preprocessing=SIZE, labels="index")
    assert sorted(opened.labels.tolist()) == [-1, 4, 4]


def test_one_process_at_a_time(tmp_path):
    with ThreadPoolExecutor(1) as pool, claimed(tmp_path / "c"):
        other = pool.submit(write, tmp_path / "c", "fog:1")
        with pytest.raises(AcclimateError, match=rf"written to by process {os.getpid()} on"):
            other.result()
    assert write(tmp_path / "c", "fog:1").made == 7


def test_a_full_disk_leaves_nothing_that_kills_the_next_run(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    real = os.posix_fallocate
    monkeypatch.setattr("os.posix_fallocate", full)
    for _ in range(2):
        with pytest.raises(AcclimateError, match="No space left"):
            write(tmp_path / "c", "fog")
        assert files(tmp_path / "c") == ["labels.npy", "manifest.json"]
    monkeypatch.setattr("os.posix_fallocate", real)
    assert write(tmp_path / "c", "fog").made == 35


@pytest.mark.parametrize(
    "damage",
    [{"constants": {"fog": None}}, {"finished": {"fog": None}}, {"finished": {"fog": ["x", 1]}}],
)
def test_a_manifest_that_is_damaged_inside_is_refused(damage, tmp_path):
    write(tmp_path / "out", "fog:1")
    manifest = tmp_path / "out" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | damage))
    with pytest.raises(AcclimateError, match=r"manifest\.json cannot be read"):
        write(tmp_path / "out", "fog:1")


def test_a_folder_that_is_removed_meanwhile_is_not_made_again_without_its_record(tmp_path):
    whole = source()

    class Removing:
        def __getattr__(self, name):
            return getattr(whole, name)

        def __len__(self):
            return len(whole)

        def read(self, rows):
            (tmp_path / "out").rename(tmp_path / "removed")
            return whole.read(rows)

    with pytest.raises(AcclimateError, match=r"could not write to .*: No such file"):
        write(tmp_path / "out", "fog:1", preset="imagenet", data=Removing(), workers=1)
    assert not (tmp_path / "out").exists()
    write(tmp_path / "out", "fog:1", preset="imagenet", workers=1)
    assert (tmp_path / "out" / "manifest.json").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(AcclimateError, match="not empty and has no manifest"):
        write(tmp_path, "fog")
    assert files(tmp_path) == ["thesis.tex"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "c").write_text("precious")
    with pytest.raises(AcclimateError, match="is a file"):
        write(tmp_path / "c", "fog")


def test_a_broken_manifest_is_named(tmp_path):
    write(tmp_path / "c", "fog:1")
    (tmp_path / "c" / "manifest.json").write_text("{")
    with pytest.raises(
        AcclimateError, match=r"expected JSON in .*manifest.json.*choose another folder"
    ):
        write(tmp_path / "c", "fog:1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "cifar10"}, "did you mean 'cifar'"),
        ({"seed": -1}, "seed >= 0, got -1"),
        ({"workers": 0}, "workers >= 1, got 0"),
        ({"data": open_images(torch.rand(2, 3, 8, 8))}, "uint8 images"),
        ({"data": open_images(IMAGES[:, :3], preprocessing=Preprocessing(size=(3, 32)))}, "4 px"),
    ],
)
def test_absurd_options(options, message, tmp_path):
    with pytest.raises(AcclimateError, match=message):
        write(tmp_path / "c", "fog", **options)
    assert not (tmp_path / "c").exists()
