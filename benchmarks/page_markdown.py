"""The form of every table in README and docs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan

from acclimate.table import Number, Table


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns, but the first, are aligned as numbers.

    >>> print(markdown(["recipe", "error"], [["ent", "9.0"]]))
    | recipe | error |
    | --- | ---: |
    | ent | 9.0 |
    """
    return Table([[r[0], *(Number(word, nan) for word in r[1:])] for r in rows], header).markdown()
