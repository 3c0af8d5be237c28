"""One process at a time in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from acclimate.errors import AcclimateError

__all__ = ["alone_in"]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows: two processes on one folder are not kept apart there
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AcclimateError(
                f"another process is writing to {folder}; wait for it, or choose another folder"
            ) from None
        yield
    finally:
        os.close(handle)
