"""A mark beside a store while a sweep adds to it, so that a second one knows of the first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["announced"]


@contextmanager
def announced(store: Path) -> Iterator[str | None]:
    """Hold the mark of a store; "process 123" where another process holds it already.

    The system takes the mark from a process that dies, however it dies. Where there are no such
    marks (Windows), nobody is ever known.

    >>> import tempfile
    >>> store = Path(tempfile.mkdtemp()) / "sweep.db"
    >>> with announced(store) as other:
    ...     print(other)
    None
    """
    try:
        import fcntl
    except ImportError:
        yield None
        return
    path = store.with_name(f"{store.name}-sweep")
    with path.open("a+", encoding="utf-8") as mark:
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            mark.seek(0)
            yield f"process {mark.read().strip() or 'unknown'}"
            return
        except OSError:  # a disk without marks
            yield None
            return
        mark.truncate(0)
        mark.write(str(os.getpid()))
        mark.flush()
        try:
            yield None
        finally:
            with suppress(OSError):
                path.unlink()
