"""One folder, one writer: who holds a folder, and no second one beside it."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from acclimate.errors import AcclimateError

__all__ = ["LOCK", "claimed"]

LOCK = ".acclimate.lock"
"""The file in a folder that its writer holds, and that says who that is."""

_mine: dict[str, tuple[int, int]] = {}
"""Folders that are held here, and by which process and thread: a fork has a copy of this."""


@contextmanager
def claimed(folder: Path) -> Iterator[Path]:
    """Make a folder, if need be, and be the only one who writes to it.

    Where another process or thread does, the error says which. The lock goes with the process,
    however it ends: that of a dead one is no longer held. Within one thread a folder may be claimed
    again. Where there are no such locks (Windows, some network disks) nobody is refused.

    >>> import tempfile
    >>> with claimed(Path(tempfile.mkdtemp()) / "run") as folder:
    ...     [path.name for path in folder.iterdir()]
    ['.acclimate.lock']
    >>> list(folder.iterdir())
    []
    """
    me = os.getpid(), threading.get_ident()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        key = os.path.realpath(folder)
        mine = _mine.get(key) == me
        handle = None if mine else _held(folder / LOCK)
    except (OSError, ValueError) as error:  # no name of a file
        reason = getattr(error, "strerror", None) or error
        raise AcclimateError(
            f"cannot write to {str(folder)!r}: {reason}; choose another folder"
        ) from error
    if mine:
        yield folder
        return
    if handle is None:
        raise AcclimateError(
            f"{folder} is written to by {_holder(folder / LOCK)}; wait for it to end, or choose "
            "another folder"
        )
    _mine[key] = me
    try:
        yield folder
    finally:
        del _mine[key]
        with suppress(OSError):
            (folder / LOCK).unlink()  # while it is held: no other's is removed
        os.close(handle)


def _held(path: Path) -> int | None:
    """A handle that holds the lock until it is closed; None where another process holds it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _lock(handle):
            os.close(handle)
            return None
        # Its last holder may have removed the file between the two calls: then it locks nothing.
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            break
        os.close(handle)
    who = {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    os.truncate(handle, 0)
    os.write(handle, json.dumps(who).encode())
    return handle


def _lock(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk without locks
        pass
    return True


def _holder(path: Path) -> str:
    """Who holds a lock, in words."""
    try:
        who = json.loads(path.read_text(encoding="utf-8"))
        return f"process {who['process']} on {who['host']} since {who['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is only just being written
        return "another process"
