"""A weights file by its content, so that moving it changes nothing."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from acclimate.errors import AcclimateError

__all__ = ["Weights"]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """A weights file: where it lies, which may change, and the sha256 of it, which says what it is.

    >>> here, there = (Weights(path=path, sha256="0a1b") for path in ("a.pt", "old/a.pt"))
    >>> here == there
    True
    """

    path: str = field(compare=False)
    sha256: str

    @classmethod
    def of(cls, path: str | Path) -> Weights:
        """Read a file; the second time only if it changed."""
        file = Path(path).expanduser().absolute()
        try:
            state = file.stat()
            digest = _sha256(file, state.st_size, state.st_mtime_ns)
        except OSError as error:
            raise AcclimateError(
                f"cannot read the weights file {path}: {error.strerror}; check its path"
            ) from error
        return cls(path=str(file), sha256=digest)


@functools.lru_cache(maxsize=256)
def _sha256(file: Path, size: int, changed: int) -> str:
    """Size and time of change are arguments so that another file is read anew."""
    total = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            total.update(block)
    return total.hexdigest()
