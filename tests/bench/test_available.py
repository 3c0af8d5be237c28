"""Whether data sets lie where they are said to."""

from __future__ import annotations

import numpy as np

from acclimate.bench import available as module
from acclimate.bench.available import AvailableData, datasets_in
from acclimate.data.corruptions import DEV, TEST
from sweeps import write_digits


def test_arrays_are_looked_into(tmp_path):
    roots = write_digits(tmp_path)
    assert "expected 10,000 images" in str(AvailableData(roots=roots).nothing_of("mnist"))
    assert AvailableData(roots=roots, incomplete=True).nothing_of("mnist") is None
    assert AvailableData().nothing_of("mnist") == "no root"


def test_of_shifts_one_is_enough_and_what_is_missing_is_named_and_looked_for_once(
    tmp_path, monkeypatch
):
    for name in (*TEST, *DEV):
        np.save(tmp_path / f"{name}.npy", np.zeros((5, 2, 2, 3), np.uint8))
    looks = []
    whole = module.missing_parts
    monkeypatch.setattr(
        module, "missing_parts", lambda *place: looks.append(place) or whole(*place)
    )
    available = AvailableData(roots={"cifar10-c": str(tmp_path)})
    assert "labels.npy" in str(available.nothing_of("cifar10-c"))
    assert len(looks) == 1
    np.save(tmp_path / "labels.npy", np.zeros(5, np.int64))
    (tmp_path / "fog.npy").unlink()
    assert AvailableData(roots=available.roots).nothing_of("cifar10-c") is None


def test_a_folder_is_searched_for_what_it_has(tmp_path):
    write_digits(tmp_path)
    found = datasets_in(str(tmp_path), ["cifar10", "mnist", "imagenet-c"], incomplete=True)
    assert found == {"mnist": str(tmp_path)}
