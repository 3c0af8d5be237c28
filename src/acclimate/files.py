"""Files that are whole or not there: written beside, synced, then renamed."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from safetensors import SafetensorError

from acclimate.errors import AcclimateError
from acclimate.text import spreadsheet_cell

__all__ = [
    "Writer",
    "csv_writer",
    "file_sha256",
    "held",
    "json_writer",
    "remove_partial",
    "sync",
    "text_writer",
    "write_files",
]

Writer = Callable[[Path], None]
"""Fills the file at a path."""


def write_files(files: Mapping[Path, Writer]) -> None:
    """Write some files, all or none: a full disk leaves those that were there before.

    Each is written beside its place; when all are on the disk they are renamed, in order, and then
    the folders are synced, without which the names could be lost with the power.
    """
    partial = {path: path.with_name(f".{path.name}.partial") for path in files}
    path = Path()
    try:
        for path, write in files.items():
            write(partial[path])
            with partial[path].open("rb+") as file:
                os.fsync(file.fileno())
            partial[path].chmod(_mode(path))  # safetensors' are for their owner alone
        for path in files:
            os.replace(partial[path], path)
        for folder in {path.parent for path in files}:
            sync(folder)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        kept = "; the previous one is untouched" if path.exists() else ""
        raise AcclimateError(f"could not write {path}: {reason}{kept}") from error
    finally:
        for temporary in partial.values():
            with suppress(OSError):  # the folder is gone, or may no longer be written to
                temporary.unlink()


def sync(folder: Path) -> None:
    """Bring the names in a folder to the disk, where a system can do that."""
    with suppress(OSError):  # Windows opens no folders, and some network disks sync none
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def file_sha256(path: Path) -> str:
    """The sha256 of a file, in hex."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def _mode(path: Path) -> int:
    """Who may read and write a file: as before, or where it is new as the user's umask has it."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def remove_partial(folder: Path) -> None:
    """Remove what a process that was killed in :func:`write_files` left in a folder."""
    for temporary in folder.glob(".*.partial"):
        temporary.unlink(missing_ok=True)


def text_writer(text: str) -> Writer:
    """A text file. Names of files that are not valid UTF-8 are written as they are."""

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8", errors="surrogateescape", newline="\n")

    return write


def json_writer(value: Any) -> Writer:
    """A JSON file."""
    return text_writer(json.dumps(value, indent=2) + "\n")


def csv_writer(rows: Iterable[Sequence[Any]]) -> Writer:
    """A CSV file that a spreadsheet shows as it is; `acclimate.reading.read_csv` reads it back."""
    lines: list[str] = []
    # Python before 3.13 quotes a carriage return only where it is part of the end of a line.
    each = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    csv.writer(each, lineterminator="\r\n").writerows(map(spreadsheet_cell, row) for row in rows)
    return text_writer("".join(lines))


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Hold a folder, or a file that is made where missing; False where another holds it already.

    The lock goes with the process, however it ends. Where there are no such locks (Windows) all
    hold it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with held(folder) as mine, held(folder) as also_mine:
    ...     print(mine, also_mine)
    True False
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = True
        except BlockingIOError:
            mine = False
        yield mine
    finally:
        os.close(handle)
