"""One line of a comparison: what the paper prints, what was measured, what is missing."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from acclimate.experiments.paper import Cell
from acclimate.experiments.reproduce.needs import Lack

__all__ = ["ComparisonRow", "Status"]

Status: TypeAlias = Literal[
    "measured",  # from runs
    "simulated",  # from the two-point model
    "counted",  # from a model's layers, the label map, printed numbers
    "library",  # a number the library goes by: nothing was measured
    "can run",  # all is there
    "incomplete",  # runs are missing, or failed
    "missing",  # something has to be got first
    "published only",
]


# What a line shows of its cell, in the order of the JSON, around what came of it.
_BEFORE = ("table", "row", "column", "metric", "unit", "published", "published_std", "diverged")
_AFTER = ("small", "erratum", "notes", "difference")


@dataclass(frozen=True, kw_only=True)
class ComparisonRow(Cell):
    """A cell, and what came of it.

    Attributes:
        measured: None where there is nothing.
        measured_std: the deviation, and ``std_over`` what.
        status: how ``measured`` came about, or why it is not there.
        lacks: what has to be got first.
        missing: which runs are missing, in words.
        setting: of a search, what was best.
        series: of a figure by epochs, the number after each.
        jobs: how many are behind it.
        images: labelled images behind one seed's number.
        small: what a small version leaves out; empty for the whole.
        notes: what differs from what the paper did, and what else one should know.
    """

    measured: float | None = None
    measured_std: float | None = None
    std_over: str | None = None
    status: Status
    lacks: tuple[Lack, ...] = ()
    missing: str = ""
    setting: str = ""
    series: tuple[float, ...] = ()
    jobs: int = 0
    images: int | None = None
    small: str = ""
    notes: tuple[str, ...] = ()

    @property
    def published_std(self) -> float | None:
        """The deviation that the paper prints."""
        return self.std

    @property
    def difference(self) -> float | None:
        """Measured minus published; None for what the library goes by, which measures nothing.

        >>> ComparisonRow(table="t", row="r", column="c", metric="error", status="measured",
        ...               published=18.0, measured=17.5).difference
        -0.5
        """
        if self.published is None or self.measured is None or self.status == "library":
            return None
        return self.measured - self.published

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: not what the cell says of how it is run."""
        of_cell = {field.name for field in fields(Cell)}
        own = [field.name for field in fields(self) if field.name not in (*of_cell, *_AFTER)]
        plain = {name: getattr(self, name) for name in (*_BEFORE, *own, *_AFTER)}
        plain["lacks"] = [vars(lack).copy() for lack in self.lacks]
        return plain
