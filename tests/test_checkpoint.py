"""Checkpoints: whole or not at all, noticed where damaged, and the one before never lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from acclimate import checkpoint, files
from acclimate.checkpoint import (
    previous_of,
    read_checkpoint,
    read_record,
    read_tensors,
    write_checkpoint,
)
from acclimate.errors import AcclimateError, AcclimateWarning


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint, and the one before it."""
    for number in range(2):
        write_checkpoint(tmp_path / "state.safetensors", state(number), {"n": number})
    return tmp_path / "state.safetensors"


def state(number: int) -> dict[str, Tensor]:
    return {"weight": torch.full((64,), float(number))}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def number_in(path: Path) -> Any:
    found = read_checkpoint(path)
    return found and found[1]["n"]


def test_the_last_one_is_read(path: Path) -> None:
    assert number_in(path) == 1


def test_where_the_last_is_damaged_the_one_before_takes_its_place(path: Path) -> None:
    flip(path)
    with pytest.warns(AcclimateWarning, match="sha256.*resumes from the checkpoint before it"):
        assert number_in(path) == 0
    assert number_in(path) == 0  # without a warning


def test_a_write_that_fails_after_that_loses_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> None:
        raise AcclimateError("no space left")

    flip(path)
    with pytest.warns(AcclimateWarning):
        assert number_in(path) == 0
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "write_files", full)
        with pytest.raises(AcclimateError):
            write_checkpoint(path, state(2), {"n": 2})
    assert number_in(path) == 0


def test_a_folder_that_is_closed_is_an_error_with_words(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", closed)
    monkeypatch.setattr("os.replace", closed)
    with pytest.raises(AcclimateError, match="Permission denied"):
        write_checkpoint(path, state(2), {"n": 2})


def test_without_the_last_one_it_starts_anew(path: Path) -> None:
    path.unlink()
    assert previous_of(path).exists()
    assert read_checkpoint(path) is None


def test_where_both_are_damaged_that_is_an_error(path: Path) -> None:
    flip(path)
    flip(previous_of(path))
    with pytest.raises(AcclimateError, match=r"could not read .*previous.*damaged"):
        read_checkpoint(path)


@pytest.mark.parametrize("record", ["my best record", "[1]", '{"sha256": "of something else"}'])
def test_files_of_others_may_have_any_record(record: str, tmp_path: Path) -> None:
    save_file(state(3), tmp_path / "other.safetensors", metadata={"record": record})
    tensors, found = read_tensors(tmp_path / "other.safetensors")
    assert torch.equal(tensors["weight"], state(3)["weight"])
    assert found == read_record(tmp_path / "other.safetensors")
    assert found in ({}, json.loads('{"sha256": "of something else"}'))


def test_what_has_no_hash_is_not_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_files({tmp_path / "x": lambda path: save_file(state(0), path)})
    monkeypatch.setattr(checkpoint, "tensors_sha256", None)
    assert read_tensors(tmp_path / "x")[1] == {}
