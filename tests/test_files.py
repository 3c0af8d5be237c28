"""Files that are whole or not there."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from acclimate.cli.output import write_file
from acclimate.errors import AcclimateError
from acclimate.files import json_writer, remove_partial, text_writer, write_files


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def full_disk(path):
    path.write_text("half of")
    raise OSError(28, "No space left on device")


def test_several_are_written_with_what_the_umask_lets_others_do(tmp_path):
    mask = os.umask(0o027)
    try:
        write_files({tmp_path / "a.txt": text_writer("a"), tmp_path / "b.json": json_writer([1])})
    finally:
        os.umask(mask)
    assert (tmp_path / "a.txt").read_text() == "a"
    assert json.loads((tmp_path / "b.json").read_text()) == [1]
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names(tmp_path)} == {0o640}


def test_a_full_disk_leaves_what_was_there_and_nothing_else(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "b.txt").write_text("old")
    with pytest.raises(AcclimateError, match=r"could not write .*b.txt: No space .* untouched"):
        write_files({tmp_path / "a.txt": text_writer("new"), tmp_path / "b.txt": full_disk})
    assert names(tmp_path) == ["a.txt", "b.txt"]
    assert {(tmp_path / name).read_text() for name in names(tmp_path)} == {"old"}


def test_a_folder_that_goes_while_it_is_written_to_is_an_error_of_ours(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()

    def write(path: Path) -> None:
        shutil.rmtree(folder)
        folder.touch()
        path.write_text("x")

    with pytest.raises(AcclimateError, match=r"could not write .*: Not a directory"):
        write_files({folder / "a.json": write})


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".a.txt.partial").write_text("half of")
    (tmp_path / "a.txt").write_text("old")
    remove_partial(tmp_path)
    assert names(tmp_path) == ["a.txt"]


def test_a_file_that_a_command_was_asked_for(tmp_path):
    target = tmp_path / "new" / "page.html"
    assert write_file(target, b"one") == target
    link = tmp_path / "link.html"
    link.symlink_to(target)
    write_file(link, b"two")
    assert link.is_symlink()
    assert target.read_bytes() == b"two"


def test_a_file_that_is_there_keeps_who_may_read_it(tmp_path):
    secret = tmp_path / "a.txt"
    secret.write_text("old")
    secret.chmod(0o600)
    write_files({secret: text_writer("new")})
    assert (secret.read_text(), stat.S_IMODE(secret.stat().st_mode)) == ("new", 0o600)


def test_a_loop_of_links_is_said(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(AcclimateError, match=r"(cannot|could not) write"):
        write_file(tmp_path / "a", b"")


def test_what_is_no_file_is_written_to_and_not_replaced():
    nowhere = Path(os.devnull)
    write_file(nowhere, b"gone")
    assert nowhere.is_char_device()


def test_folders_are_synced_after_files_got_their_names(tmp_path, monkeypatch):
    synced = []

    def fsync(handle):
        synced.append((Path(os.readlink(f"/proc/self/fd/{handle}")).name, names(tmp_path)))

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", fsync)
    write_files({tmp_path / "a.txt": text_writer("a"), tmp_path / "b.txt": text_writer("b")})
    assert [name for name, _ in synced] == [".a.txt.partial", ".b.txt.partial", tmp_path.name]
    assert synced[-1][1] == ["a.txt", "b.txt"]
