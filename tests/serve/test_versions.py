"""Versions: whole or not there, a few of them, of one model, held by one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.serve.versions import Version, Versions, now

NET = {"model": "net", "weights": "0a", "recipe": {"name": "ent"}}


def version(number: int) -> Version:
    return Version(number=number, cause="learning", created=now(), step=10 * number)


def filled(folder: Path | None, count: int, *, keep: int = 20) -> Versions:
    versions = Versions(folder, identity=NET, keep=keep)
    for number in range(count):
        versions.add(version(number), {"w": torch.full((2,), float(number))})
    return versions


@pytest.fixture(params=["folder", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "new" / "versions" if request.param == "folder" else None


def test_the_source_and_the_last_few_are_kept(folder: Path | None) -> None:
    versions = filled(folder, 8, keep=3)
    assert [each.number for each in versions.list()] == [0, 5, 6, 7]
    assert versions.newest == versions.list()[-1]
    assert versions.next_number == 8
    assert torch.equal(versions.read(6)["w"], torch.full((2,), 6.0))
    with pytest.raises(AcclimateError, match="no version 2; kept are 0, 5, 6, 7"):
        versions.read(2)
    versions.close()


def test_a_folder_gives_its_versions_back(tmp_path: Path) -> None:
    first = filled(tmp_path, 4)
    first.remember_paused(True)
    first.close()
    again = Versions(tmp_path, identity=NET, keep=20)
    assert again.list() == first.list()
    assert again.paused
    assert torch.equal(again.read(3)["w"], torch.full((2,), 3.0))
    again.close()


def test_a_damaged_version_is_left_out_with_a_warning(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    (tmp_path / "version-00000002.safetensors").write_bytes(b"half of a")
    with pytest.warns(AcclimateWarning, match="version-00000002.safetensors is damaged"):
        again = Versions(tmp_path, identity=NET, keep=20)
    assert [each.number for each in again.list()] == [0, 1]
    again.close()


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    filled(tmp_path, 2).close()
    (tmp_path / ".version-00000002.safetensors.partial").write_bytes(b"half")
    again = Versions(tmp_path, identity=NET, keep=20)
    assert [each.number for each in again.list()] == [0, 1]
    assert not list(tmp_path.glob(".*.partial"))
    again.close()


def test_versions_of_another_model_are_refused(tmp_path: Path) -> None:
    filled(tmp_path, 2).close()
    with pytest.raises(AcclimateError, match=r'weights: there "0a", here "0b"\); choose another'):
        Versions(tmp_path, identity={**NET, "weights": "0b"}, keep=20)
    Versions(tmp_path, identity=NET, keep=20).close()  # it is not held


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    import threading

    versions = filled(tmp_path, 1)
    refused: list[str] = []

    def other() -> None:
        try:
            Versions(tmp_path, identity=NET, keep=20)
        except AcclimateError as error:
            refused.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert "is written to by process" in refused[0]
    versions.close()
