"""The one door to all benchmarks: requests are checked before a data set is touched."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from acclimate.data import ImageSource, Preprocessing, Skipped
from acclimate.data.arrays import ArraySource
from acclimate.data.benchmarks import registry
from acclimate.data.benchmarks.registry import (
    Dataset,
    Request,
    find_dataset,
    list_datasets,
    missing_parts,
    open_dataset,
    register_dataset,
)
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.registry import Registry

TINY = Preprocessing(size=(4, 4))


@pytest.fixture
def requests(monkeypatch):
    """An empty registry with two data sets in it, and what their openers were asked for."""
    monkeypatch.setattr(registry, "_DATASETS", Registry("data set"))
    asked: list[Request] = []

    def open_(request: Request) -> ImageSource:
        asked.append(request)
        return ArraySource(np.zeros((2, 4, 4, 3), np.uint8), preprocessing=request.fitting)

    facts = {
        "classes": 10,
        "images": "2",
        "size": "3 GB",
        "get": "Get it from https://example.org",
        "layout": "a/\nb/",
        "open": open_,
    }
    register_dataset(Dataset(name="plain", title="Plain things", preprocessing=TINY, **facts))
    register_dataset(
        Dataset(
            name="shifted",
            title="Shifted things",
            splits=("test", "train"),
            shifts=("fog", "snow"),
            shift_kind="corruption",
            severities=True,
            dev=("snow",),
            missing=lambda root: [] if (root / "fog").exists() else ["fog"],
            **facts,
        )
    )
    return asked


def test_data_sets_are_listed_by_wildcard_and_found_by_name(requests):
    assert [record.name for record in list_datasets()] == ["plain", "shifted"]
    assert [record.name for record in list_datasets("s*")] == ["shifted"]
    assert find_dataset("plain").title == "Plain things"
    with pytest.raises(
        AcclimateError, match=r"unknown data set 'shiftd'; did you mean 'shifted'\?"
    ):
        find_dataset("shiftd")


def test_a_name_that_is_registered_again_is_replaced(requests):
    with pytest.warns(AcclimateWarning, match="was registered before"):
        register_dataset(replace(find_dataset("plain"), title="Plainer"))
    assert find_dataset("plain").title == "Plainer"


def test_what_is_not_held_out_is_for_testing(requests):
    assert find_dataset("shifted").dev == ("snow",)
    assert find_dataset("shifted").test == ("fog",)


def test_records_that_contradict_themselves_are_refused(requests):
    facts = {
        key: getattr(find_dataset("plain"), key)
        for key in ("title", "classes", "images", "size", "get", "layout", "open")
    }
    with pytest.raises(AcclimateError, match=r"dev shifts .* got \['hail'\]"):
        Dataset(name="x", shifts=("fog",), dev=("hail",), **facts)
    with pytest.raises(AcclimateError, match="severities, but of no shift"):
        Dataset(name="x", severities=True, **facts)


def test_the_opener_gets_a_checked_request(requests, tmp_path):
    source = open_dataset(
        "shifted", str(tmp_path), shift="fog", severity=3, preprocessing=TINY, cache=7
    )
    assert len(source) == 2
    (request,) = requests
    assert request.root == tmp_path
    assert (request.split, request.shift, request.severity) == ("test", "fog", 3)
    assert (request.preprocessing, request.cache, request.incomplete) == (TINY, 7, False)


def test_the_usual_preprocessing_is_taken_unless_another_is_given(requests, tmp_path):
    other = Preprocessing(size=(9, 9))
    assert open_dataset("plain", tmp_path).preprocessing == TINY
    assert open_dataset("plain", tmp_path, preprocessing=other).preprocessing == other
    with pytest.raises(AcclimateError, match="images of shifted must be scaled"):
        open_dataset("shifted", tmp_path, shift="fog", severity=1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("plain", {"split": "train"}, "plain has no splits, got split='train'"),
        ("plain", {"shift": "fog"}, "plain has no shifts, got shift='fog'"),
        ("plain", {"severity": 1}, "plain has no severities, got 1"),
        ("shifted", {"severity": 1}, "2 corruptions, and one has to be chosen.* fog, snow"),
        ("shifted", {"shift": "fogg", "severity": 1}, "corruption of shifted 'fogg'.* 'fog'"),
        ("shifted", {"shift": "fog"}, "expected severity= 1, 2, 3, 4 or 5, got None"),
        ("shifted", {"shift": "fog", "severity": 6}, "1, 2, 3, 4 or 5, got 6"),
        ("shifted", {"shift": "fog", "severity": 0}, "1, 2, 3, 4 or 5, got 0"),
        ("shifted", {"shift": "fog", "severity": 3.0}, "1, 2, 3, 4 or 5, got 3.0"),
        ("shifted", {"shift": "fog", "severity": True}, "1, 2, 3, 4 or 5, got True"),
        ("shifted", {"shift": "fog", "severity": 1, "split": "val"}, "split of shifted 'val'"),
    ],
)
def test_a_wrong_choice_is_named_before_the_disk_is_read(requests, name, options, message):
    with pytest.raises(AcclimateError, match=message):
        open_dataset(name, "/nowhere", **options)
    assert requests == []


def test_a_missing_root_tells_what_to_get_how_big_and_where_to_put_it(requests, tmp_path):
    with pytest.raises(AcclimateError) as caught:
        open_dataset("plain", tmp_path / "data")
    text = str(caught.value)
    for part in ("Plain things", "3 GB", "https://example.org", str(tmp_path / "data"), "  b/"):
        assert part in text
    assert requests == []
    assert not (tmp_path / "data").exists()


def test_missing_parts_are_listed(requests, tmp_path):
    assert missing_parts("shifted", tmp_path) == ["fog"]
    assert missing_parts("shifted", tmp_path / "no") == [str(tmp_path / "no")]
    assert missing_parts("plain", tmp_path) == []
    (tmp_path / "fog").mkdir()
    assert missing_parts("shifted", tmp_path) == []


class _Damaged(ArraySource):
    def __init__(self) -> None:
        super().__init__(torch.zeros(2, 3, 4, 4))
        self.skipped = [Skipped(f"{number}.jpg", "truncated") for number in range(7)]


def test_unreadable_files_are_refused_by_name_or_warned_of(requests, tmp_path):
    record = find_dataset("plain")
    facts = {**record.__dict__, "name": "damaged", "open": lambda request: _Damaged()}
    register_dataset(Dataset(**facts))
    with pytest.raises(AcclimateError, match=r"7 of 9 images .*0\.jpg: truncated.*incomplete=True"):
        open_dataset("damaged", tmp_path)
    with pytest.warns(AcclimateWarning, match="7 of 9 images"):
        assert len(open_dataset("damaged", tmp_path, incomplete=True)) == 2


def test_notes_are_for_people_who_watch(requests, tmp_path, capsys):
    facts = {"dataset": find_dataset("plain"), "root": Path(tmp_path)}
    Request(**facts).note("by the way")
    Request(**facts, progress=False).note("not this")
    assert capsys.readouterr().err == "plain: by the way\n"


def test_every_published_record_is_complete():
    records = list_datasets()
    assert {"imagenet", "imagenet-c", "imagenet-r", "imagenet-a", "imagenet-d"} <= {
        record.name for record in records
    }
    own = find_dataset("folder")
    assert own.classes is None
    for record in [each for each in records if each is not own]:
        text = record.how_to_get(Path("/data"))
        assert "http" in text, record.name
        assert re.search(r"download: .*\d.*[kKMG]i?B", text), record.name
        assert record.classes > 1
        assert "\n" not in record.title
