"""Files a command leaves where the user asked for them."""

from __future__ import annotations

from pathlib import Path

from acclimate.errors import AcclimateError

__all__ = ["write_file"]


def write_file(path: Path, content: bytes) -> Path:
    """Write a file, and the folders above it; hands the path back."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except (OSError, ValueError) as error:  # a path may hold what no file name can
        reason = getattr(error, "strerror", None) or error
        raise AcclimateError(f"cannot write {str(path)!r}: {reason}") from error
    return path
