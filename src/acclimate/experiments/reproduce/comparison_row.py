"""One line of a comparison: what the paper prints, what was measured, what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

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


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """A cell beside what came of it.

    Attributes:
        table: its label.
        row: in the table.
        column: in the table.
        metric: see ``Cell.metric``.
        unit: "%" or nothing.
        published: what the paper prints; None where it prints nothing, or that it ``diverged``.
        published_std: the deviation it prints.
        diverged: whether it prints that the run diverged.
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
        erratum: what is wrong with the print.
        notes: what differs from what the paper did, and what else one should know.
    """

    table: str
    row: str
    column: str
    metric: str
    unit: str = "%"
    published: float | None = None
    published_std: float | None = None
    diverged: bool = False
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
    erratum: str | None = None
    notes: tuple[str, ...] = ()

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
        """Plain values, for JSON."""
        plain = vars(self) | {"difference": self.difference}
        plain["lacks"] = [vars(lack).copy() for lack in self.lacks]
        return plain
