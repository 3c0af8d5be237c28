"""Files that are whole or not there: written beside, synced, then renamed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from acclimate.errors import AcclimateError

__all__ = ["Writer", "held", "json_writer", "remove_partial", "text_writer", "write_files"]

Writer = Callable[[Path], None]
"""Fills the file at a path."""


def write_files(files: Mapping[Path, Writer]) -> None:
    """Write some files, all or none: a full disk leaves those that were there before.

    Each is written beside its place; when all are on the disk they are renamed, in order.
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
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        kept = "; the previous one is untouched" if path.exists() else ""
        raise AcclimateError(f"could not write {path}: {reason}{kept}") from error
    finally:
        for temporary in partial.values():
            temporary.unlink(missing_ok=True)


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
