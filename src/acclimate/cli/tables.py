"""Tables for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from acclimate.words import option_words

__all__ = ["dimension_word", "table"]


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


_NO_VALUE = {"setting": "stationary", "images": "all", "corruption": "clean"}


def dimension_word(name: str, value: Any) -> str:
    """What a result is of, as a row or the head of a column says it.

    >>> dimension_word("setting", None), dimension_word("options", '{"optimizer.lr": 0.001}')
    ('stationary', 'optimizer.lr=0.001')
    """
    if name == "options":
        return option_words(json.loads(value).items(), between=" ", none="-")
    return _NO_VALUE.get(name, "-") if value is None else str(value)
