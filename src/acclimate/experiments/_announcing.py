"""A mark beside a store while a sweep adds to it, so that a second one knows of the first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from acclimate.locking import held

__all__ = ["announced"]


@contextmanager
def announced(store: Path) -> Iterator[str | None]:
    """Hold the mark of a store; "process 123" where another process holds it already.

    Where a mark cannot be had (Windows, some network disks, folders of others), nobody is known.

    >>> import tempfile
    >>> store = Path(tempfile.mkdtemp()) / "sweep.db"
    >>> with announced(store) as other:
    ...     print(other)
    None
    """
    resolved = store.resolve()
    with ExitStack() as until_the_end:
        yield _other(resolved.with_name(f"{resolved.name}-sweep"), until_the_end)


def _other(mark: Path, until_the_end: ExitStack) -> str | None:
    with suppress(OSError):  # a courtesy, which no sweep is to fail for
        if not until_the_end.enter_context(held(mark)):
            return f"process {mark.read_text() or 'unknown'}"
        mark.write_text(str(os.getpid()))
        # Emptied, not removed: whoever has opened it meanwhile would hold the mark of nothing.
        until_the_end.callback(mark.write_text, "")
    return None
