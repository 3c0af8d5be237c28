"""Files a command leaves where the user asked for them."""

from __future__ import annotations

from pathlib import Path

from acclimate.errors import AcclimateError
from acclimate.files import write_files

__all__ = ["write_file"]


def write_file(path: Path, content: bytes) -> Path:
    """Write a file, whole or not at all, and the folders above it; hands the path back."""

    def write(target: Path) -> None:
        target.write_bytes(content)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # /dev/stdout is written to, not replaced
            write(path)
        else:
            write_files({path.resolve(): write})  # where a link leads, which stays one
    except (OSError, ValueError) as error:  # a path may hold what no file name can
        reason = getattr(error, "strerror", None) or error
        raise AcclimateError(f"cannot write {str(path)!r}: {reason}") from error
    return path
