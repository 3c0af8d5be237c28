"""What the commands print and write."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.files import write_files
from acclimate.text import printable

__all__ = [
    "escape_output",
    "say_written",
    "show_warnings_plainly",
    "write_figure",
    "write_file",
    "write_page",
]


def write_file(path: Path, content: bytes) -> Path:
    """Write a file, whole or not at all, and the folders above it; returns the path."""

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


def write_figure(folder: Path, name: str, spec: dict[str, Any]) -> list[Path]:
    """A chart as SVG and as PNG."""
    from acclimate.report.charts import png, svg

    drawn = {"svg": svg(spec).encode(), "png": png(spec)}
    return [write_file(folder / f"{name}.{kind}", content) for kind, content in drawn.items()]


def write_page(path: Path, page: Callable[[], str]) -> list[str]:
    """Write a page; its name, or none where what makes pages is not installed, and a line on it."""
    from acclimate.report.templates import why_no_pages

    missing = why_no_pages()
    if missing is not None:
        print(f"note: {path.name} is left out; {missing}", file=sys.stderr)
        return []
    write_file(path, page().encode("utf-8", "backslashreplace"))
    return [path.name]


def say_written(written: Sequence[Path]) -> None:
    """Print the files, the first of which is a page."""
    for path in written:
        print(f"{path}  {path.stat().st_size / 1000:,.0f} kB")
    print(f"Open {written[0]} in a browser; it needs no server and no network.")


def _in_place(path: Path) -> bool:
    """Whether a file cannot be replaced, only written to: /dev/stdout, in a read-only folder."""
    device = path.is_absolute() and path.parts[1:2] in (("dev",), ("proc",))
    read_only = path.is_file() and not os.access(path.resolve().parent, os.W_OK)
    return device or read_only or (path.exists() and not path.is_file())


class _Escaped:
    """A stream that is written to as a terminal may show it; names come from files of others."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def escape_output() -> Iterator[None]:
    """Write out control characters in all that is printed to standard output."""
    with redirect_stdout(_Escaped(sys.stdout)):
        yield


@contextmanager
def show_warnings_plainly() -> Iterator[None]:
    """Print our warnings, each once, without file and line; other libraries' as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", AcclimateWarning)
        # Pillow's, of an image that we leave out and name ourselves.
        warnings.filterwarnings("ignore", message="Image size .* exceeds limit of")
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, AcclimateWarning):
                print(printable(f"warning: {message}"), file=sys.stderr)
            else:
                others(message, category, *rest, **more)

        warnings.showwarning = show
        yield
