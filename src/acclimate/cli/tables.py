"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["table"]


def table(rows: Sequence[Sequence[str]], *, header: Sequence[str] | None = None) -> str:
    """Columns as wide as their widest cell.

    >>> print(table([["none", "42.0"], ["rpl", "7.1"]], header=["recipe", "error %"]))
    recipe  error %
    ------  -------
    none    42.0
    rpl     7.1
    """
    lines = [list(row) for row in rows]
    if header is not None:
        lines = [list(header), ["-" * len(cell) for cell in header], *lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    if header is not None:
        lines[1] = ["-" * width for width in widths]
    padded = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)
