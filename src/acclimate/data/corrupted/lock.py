"""One process at a time in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from acclimate.errors import AcclimateError
from acclimate.locking import held

__all__ = ["alone_in"]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder, and refuse where another process does."""
    with held(folder) as mine:
        if not mine:
            raise AcclimateError(
                f"another process is writing to {folder}; wait for it, or choose another folder"
            )
        yield
