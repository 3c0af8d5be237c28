"""A stream through many shifts as a result for each of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from acclimate.experiments._frame import Frame
from acclimate.experiments._sorting import Key

__all__ = ["BY_SHIFT", "by_shift"]

BY_SHIFT = "by_shift"
"""The column with a stream's errors by shift, as JSON; None where a result has nothing of it."""


def by_shift(frame: Frame, *, value: str) -> Frame:
    """Each stream in as many parts as it met shifts, with the error on each as its ``value``.

    A shift met several times (growing and fading) counts with the mean over these.

    >>> columns = ("corruption", "labelled", "by_shift", "error")
    >>> rows = [("test", 40, '{"fog": [10.0, 30.0], "snow": [50.0]}', 35.0)]
    >>> by_shift(Frame(columns=columns, rows=rows), value="error").rows
    [('fog', 20, None, 20.0), ('snow', 20, None, 50.0)]
    """
    return replace(frame, rows=[part for row in frame.rows for part in _parts(frame, row, value)])


def _parts(frame: Frame, row: Key, value: str) -> Iterator[Key]:
    errors: Mapping[str, Sequence[float | None]] = json.loads(row[frame.place(BY_SHIFT)] or "{}")
    if not errors:
        yield row
        return
    whole = dict(zip(frame.columns, row, strict=True))
    # The shifts of a group are of the same images.
    labelled = None if whole["labelled"] is None else whole["labelled"] // len(errors)
    for name, each in errors.items():
        known = [error for error in each if error is not None]
        error = fmean(known) if known else None
        part = {"corruption": name, "labelled": labelled, BY_SHIFT: None, value: error}
        yield tuple((whole | part).values())
