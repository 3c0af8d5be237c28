"""A mark beside a store while a sweep adds to it, so that a second one knows of the first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

__all__ = ["announced"]


@contextmanager
def announced(store: Path) -> Iterator[str | None]:
    """Hold the mark of a store; "process 123" where another process holds it already.

    The system takes the mark from a process that dies, however it dies. Where there are no such
    marks (Windows, some network disks, folders of others), nobody is ever known.

    >>> import tempfile
    >>> store = Path(tempfile.mkdtemp()) / "sweep.db"
    >>> with announced(store) as other:
    ...     print(other)
    None
    """
    resolved = store.resolve()
    with ExitStack() as held:
        yield _take(resolved.with_name(f"{resolved.name}-sweep"), held)


def _take(path: Path, held: ExitStack) -> str | None:
    try:
        import fcntl

        mark = held.enter_context(path.open("a+", encoding="utf-8"))
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            mark.seek(0)
            return f"process {mark.read() or 'unknown'}"
        _write(mark, str(os.getpid()))
        # Emptied, not removed: whoever has opened it meanwhile would hold the mark of nothing.
        held.callback(_write, mark, "")
    except (ImportError, OSError):
        pass  # a courtesy, which no sweep is to fail for
    return None


def _write(mark: TextIO, text: str) -> None:
    mark.truncate(0)
    mark.write(text)
    mark.flush()
