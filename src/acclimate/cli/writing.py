"""Files a command leaves where the user asked for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from acclimate.errors import AcclimateError
from acclimate.files import write_files

__all__ = ["say_written", "write_figure", "write_file"]


def write_file(path: Path, content: bytes) -> Path:
    """Write a file, whole or not at all, and the folders above it; hands the path back."""

    def write(target: Path) -> None:
        target.write_bytes(content)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if _in_place(path):
            write(path)
        else:
            write_files({path.resolve(): write})  # where a link leads, which stays one
    except (OSError, ValueError, RuntimeError) as error:  # no file name, a loop of links
        reason = getattr(error, "strerror", None) or error
        raise AcclimateError(f"cannot write {str(path)!r}: {reason}") from error
    return path


def write_figure(folder: Path, name: str, svg: str, *, as_png: bool) -> list[Path]:
    """A figure as SVG, and as PNG too."""
    from acclimate.reporting.png import png

    written = [write_file(folder / f"{name}.svg", svg.encode())]
    if as_png:
        written.append(write_file(folder / f"{name}.png", png(svg)))
    return written


def say_written(written: Sequence[Path], *, no_png: str | None) -> None:
    """Name the files, the first of which is a page, and say why there are no PNG files."""
    for path in written:
        print(f"{path}  {path.stat().st_size / 1000:,.0f} kB")
    if no_png is not None:
        print(f"SVG only. {no_png}")
    print(f"Open {written[0]} in a browser; it needs no server and no network.")


def _in_place(path: Path) -> bool:
    """Whether nothing can take the place of what is there: /dev/stdout, a file in a shut folder."""
    device = path.is_absolute() and path.parts[1:2] in (("dev",), ("proc",))
    shut = path.is_file() and not os.access(path.resolve().parent, os.W_OK)
    return device or shut or (path.exists() and not path.is_file())
