"""WebDataset shards: found by pattern, indexed once, read in any order."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from acclimate.data import ClassList, Preprocessing
from acclimate.data.shards import ShardSource, expand_shards
from acclimate.errors import AcclimateError

RGB8 = Preprocessing(size=(8, 8))
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


def png(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(IMAGES[number]).save(buffer, "png")
    return buffer.getvalue()


def pack(path: Path, members: list[tuple[str, bytes]], **options) -> Path:
    with tarfile.open(path, "w", **options) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def open_all(paths, **options) -> ShardSource:
    return ShardSource(paths, preprocessing=RGB8, progress=False, **options)


@pytest.fixture
def shards(tmp_path) -> list[Path]:
    return [
        pack(
            tmp_path / f"data-00{shard}.tar",
            [
                member
                for number in range(3 * shard, 3 * shard + 3)
                for member in (
                    (f"{number:06}.png", png(number)),
                    (f"{number:06}.cls", f"{number % 4}\n".encode()),
                )
            ],
        )
        for shard in range(2)
    ]


@pytest.mark.parametrize("cache", [None, 0])
def test_samples_are_read_in_any_order(shards, cache):
    source = open_all(shards, cache=cache)
    assert len(source) == 6
    assert source.names[:2] == ["data-000.tar/000000", "data-000.tar/000001"]
    assert source.names[5] == "data-001.tar/000005"
    assert source.labels.tolist() == [0, 1, 2, 3, 0, 1]
    assert source.skipped == []
    read = source.read(torch.tensor([5, 0, 3]))
    assert read.dtype == torch.uint8
    np.testing.assert_array_equal(read.numpy(), IMAGES[[5, 0, 3]].transpose(0, 3, 1, 2))


def test_labels_in_json_or_none_and_files_of_no_use(tmp_path):
    path = pack(
        tmp_path / "a.tar",
        [
            ("train/a.b.json", b"not ours"),
            ("train/a.json", json.dumps({"label": 2, "more": "x"}).encode()),
            ("train/a.PNG", png(0)),
            ("train/b.jpg", png(1)),
            ("train/b.seg.png", png(2)),
            ("train/b.txt", b"a caption"),
            ("train/c.json", b'{"caption": "none"}'),
            ("train/c.png", png(3)),
            ("train/._a.png", b"of macOS"),
            ("README", b"no sample"),
        ],
    )
    source = open_all([path])
    assert source.names == ["a.tar/train/a", "a.tar/train/b", "a.tar/train/c"]
    assert source.labels.tolist() == [2, -1, -1]
    np.testing.assert_array_equal(
        source.read(torch.arange(3)).numpy(), IMAGES[[0, 1, 3]].transpose(0, 3, 1, 2)
    )


def test_no_labels_at_all(tmp_path):
    assert open_all([pack(tmp_path / "a.tar", [("a.png", png(0))])]).labels is None


def test_folders_give_labels_where_no_sample_has_one(tmp_path):
    members = [("cat/0.png", png(0)), ("dog/0.png", png(1)), ("cat/1.png", png(2))]
    path = pack(tmp_path / "a.tar", members)
    source = open_all([path], classes=ClassList(("dog", "cat")))
    assert source.labels.tolist() == [1, 0, 1]
    assert source.class_names == ("cat", "dog")
    own = pack(tmp_path / "b.tar", [*members, ("cat/1.cls", b"0")])
    assert open_all([own], classes=ClassList(("dog", "cat"))).labels.tolist() == [-1, -1, 0]


def test_unreadable_images_are_left_out_with_their_labels(tmp_path):
    path = pack(
        tmp_path / "a.tar",
        [
            ("a.png", b"broken"),
            ("a.cls", b"1"),
            ("b.cls", b"2"),
            ("c.png", png(0)),
            ("c.cls", b"3"),
            ("d.png", b""),
        ],
    )
    source = open_all([path])
    assert source.names == ["a.tar/c"]
    assert source.labels.tolist() == [3]
    assert [(item.name, item.reason) for item in source.skipped] == [
        ("a.tar/a", "not an image"),
        ("a.tar/b", "no image (only cls)"),
        ("a.tar/d", "empty file"),
    ]


def test_given_labels_override(shards):
    assert open_all(shards, labels=[5] * 6).labels.tolist() == [5] * 6
    with pytest.raises(AcclimateError, match="one label for each of the 6 images"):
        open_all(shards, labels=[5])


def test_labels_beyond_the_models_classes_are_refused(shards):
    with pytest.raises(AcclimateError, match="model with 3 classes"):
        open_all(shards, classes=ClassList(("a", "b", "c")))


def test_the_fingerprint_is_of_samples_not_of_shards(shards, tmp_path):
    members = [(f"{number:06}.png", png(number)) for number in range(6)]
    together = pack(tmp_path / "all.tar", members)
    assert open_all([together]).fingerprint() == open_all(shards).fingerprint()
    assert open_all(shards[:1]).fingerprint() != open_all(shards).fingerprint()


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names_of_every_tar_format(tmp_path, form):
    name = "deep/" * 15 + "x" * 60
    path = pack(tmp_path / "a.tar", [(f"{name}.png", png(4))], format=form)
    source = open_all([path])
    assert source.names == [f"a.tar/{name}"]
    np.testing.assert_array_equal(source.read(torch.tensor([0]))[0], IMAGES[4].transpose(2, 0, 1))


def test_shards_of_one_name_are_told_apart_by_path(tmp_path):
    paths = []
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        paths.append(pack(tmp_path / folder / "a.tar", [("0.png", png(0))]))
    assert open_all(paths).names == [f"{path.as_posix()}/0" for path in paths]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.png", b"1"), ("a.png", b"2")], r"got a\.png twice"),
        ([("a.png", b"1"), ("a.jpg", b"2")], r"a in .* has png, jpg"),
        ([("a.png", b"1"), ("a.cls", b"cat")], r"class index in a\.cls .* got b'cat'"),
        ([("a.png", b"1"), ("a.json", b"[]")], r"a\.json"),
        ([("a.png", b"1"), ("a.json", b'{"label": "cat"}')], r'as "label" in a\.json'),
        ([("a.png", b"1"), ("a.json", b"{")], r"a\.json"),
        ([("a.png", b"1")], "none of the 1 images in 1 shards can be read"),
        ([], "expected samples in 1 shards, found none"),
    ],
)
def test_bad_samples_are_named(tmp_path, members, message):
    with pytest.raises(AcclimateError, match=message):
        open_all([pack(tmp_path / "a.tar", members)])


def test_compressed_shards_are_refused_with_what_to_do(shards):
    shards[0].write_bytes(gzip.compress(shards[0].read_bytes()))
    with pytest.raises(AcclimateError, match=r"compressed.*gunzip data-000\.tar"):
        open_all(shards)


def test_a_shard_cut_off_anywhere_is_refused(shards):
    content = shards[0].read_bytes()
    members = content.rstrip(b"\0")
    for keep in range(0, len(members) + 1, 97):
        shards[0].write_bytes(content[:keep])
        with pytest.raises(AcclimateError, match=r"data-000\.tar"):
            open_all(shards[:1])


def test_damage_within_a_shard_is_not_taken_for_its_end(shards):
    content = bytearray(shards[0].read_bytes())
    with tarfile.open(shards[0]) as tar:
        at = tar.getmembers()[2].offset
    content[at : at + 512] = b"x" * 512
    shards[0].write_bytes(content)
    with pytest.raises(AcclimateError, match="cut short or damaged"):
        open_all(shards)


def test_tars_put_together_with_cat_are_refused(shards, tmp_path):
    both = tmp_path / "both.tar"
    both.write_bytes(shards[0].read_bytes() + shards[1].read_bytes())
    with pytest.raises(AcclimateError, match="continues after its end"):
        open_all([both])


def test_no_tar_and_no_file(tmp_path):
    with pytest.raises(AcclimateError, match=r"cannot read the shard .*nowhere\.tar"):
        open_all([tmp_path / "nowhere.tar"])
    (tmp_path / "a.tar").write_bytes(b"text" * 1000)
    with pytest.raises(AcclimateError, match="expected a whole tar file"):
        open_all([tmp_path / "a.tar"])
    with pytest.raises(AcclimateError, match="at least one shard"):
        open_all([])


def test_a_shard_given_twice_is_named(shards):
    with pytest.raises(AcclimateError, match=r"each shard once, got .*data-000\.tar again"):
        open_all([shards[0], shards[1], shards[0]])


def test_a_shard_that_changes_later_is_named(shards):
    source = open_all(shards, cache=0)
    os.truncate(shards[1], 0)
    with pytest.raises(AcclimateError, match=r"data-001\.tar/000004 in .* at opening"):
        source.read(torch.tensor([4]))


def test_patterns(tmp_path):
    for name in ("d-008", "d-009", "d-010", "d-011", "val"):
        (tmp_path / f"{name}.tar").touch()
    names = {
        "d-{008..011}.tar": ["d-008", "d-009", "d-010", "d-011"],
        "d-0{08..09}.tar": ["d-008", "d-009"],
        "d-{008,011}.tar": ["d-008", "d-011"],
        "{d-{008},val}.tar": None,
        "d-0{0,1}{8..9}.tar": None,
        "d-01?.tar": ["d-010", "d-011"],
        "val.tar": ["val"],
        "": ["d-008", "d-009", "d-010", "d-011", "val"],
    }
    for pattern, wanted in names.items():
        if wanted is None:
            with pytest.raises(AcclimateError, match="not there"):
                expand_shards(tmp_path / pattern)
        else:
            found = expand_shards(str(tmp_path / pattern))
            assert [path.stem for path in found] == wanted


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("d-{0..2}.tar", r"3 of .* are not there: .*d-0\.tar"),
        ("d-{2..0}.tar", "count upwards"),
        ("d-{a..c}.tar", "two numbers"),
        ("*.tar", "not there"),
        ("", "expected .tar files"),
    ],
)
def test_patterns_that_mean_nothing(tmp_path, pattern, message):
    with pytest.raises(AcclimateError, match=message):
        expand_shards(tmp_path / pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "x{0..99999999}.tar",
        "x{0..999}{0..999}.tar",
        "x{1..1000000000000000000000}.tar",
        "x{0..99999999}{9..0}.tar",
    ],
)
def test_a_pattern_of_too_many_shards_is_refused_at_once(pattern):
    said = r"at most 100,000 shards|expected two numbers|count upwards"
    with pytest.raises(AcclimateError, match=said):
        expand_shards(pattern)
