"""A file or folder that one process at a time may hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["held"]


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Hold a folder, or a file that is made where missing; False where another holds it already.

    The lock goes with the process, however it ends. Where there are no such locks (Windows) all are
    told that they hold it.

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
