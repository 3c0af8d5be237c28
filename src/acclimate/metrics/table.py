"""Errors by corruption and severity, counted as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor

from acclimate.data.labels import Scoring
from acclimate.errors import AcclimateError
from acclimate.metrics.error import ErrorCounts
from acclimate.metrics.figure import Figure
from acclimate.metrics.relative_error import SEVERITIES, MeanCorruptionError, mce, mean_error

__all__ = ["ErrorTable"]


@dataclass
class ErrorTable:
    """Wrong predictions by corruption and severity; tables of disjoint images add up.

    >>> import torch
    >>> table = ErrorTable()
    >>> table.update(torch.eye(4), torch.tensor([0, 1, 2, 0]), corruption="fog", severity=1)
    >>> table.update(torch.eye(4), torch.tensor([0, 1, 0, 0]), corruption="fog", severity=5)
    >>> print(table.by_corruption()["fog"])
    37.5 % (8 images)
    >>> print(table)
    | corruption | 1 | 5 | mean | images |
    |---|---|---|---|---|
    | fog | 25.0 | 50.0 | 37.5 | 8 |
    | mean | 25.0 | 50.0 | 37.5 | 8 |
    """

    cells: dict[tuple[str, int], ErrorCounts] = field(default_factory=dict)

    def update(
        self,
        logits: Tensor,
        labels: Tensor,
        *,
        corruption: str,
        severity: int,
        scoring: Scoring | None = None,
    ) -> None:
        """Add a batch of one corruption and severity."""
        if not hasattr(severity, "__index__") or not 1 <= severity <= SEVERITIES:
            raise AcclimateError(f"expected a severity of 1, 2, 3, 4 or 5, got {severity!r}")
        counts = self.cells.setdefault((corruption, severity), ErrorCounts())
        counts.update(logits, labels, scoring=scoring)

    def merge(self, other: ErrorTable) -> None:
        """Add the counts of other images (another process, another part of the set)."""
        for cell, counts in other.cells.items():
            mine = self.cells.get(cell)
            self.cells[cell] = counts + ErrorCounts() if mine is None else mine + counts

    def __add__(self, other: ErrorTable) -> ErrorTable:
        total = ErrorTable()
        total.merge(self)
        total.merge(other)
        return total

    def corruptions(self) -> list[str]:
        """The corruptions seen, in the order they came."""
        return list(dict.fromkeys(name for name, _ in self.cells))

    def severities(self) -> list[int]:
        """The severities seen, weakest first."""
        return sorted({severity for _, severity in self.cells})

    def _counts(self, corruption: str) -> list[ErrorCounts]:
        cells = [self.cells.get((corruption, severity)) for severity in self.severities()]
        return [counts for counts in cells if counts is not None]

    def by_corruption(self, *, interval: float | None = None) -> dict[str, Figure]:
        """The error of each corruption: the mean over its severities."""
        return {
            name: mean_error({name: self._counts(name)}, interval=interval)
            for name in self.corruptions()
        }

    def by_severity(self, *, interval: float | None = None) -> dict[int, Figure]:
        """The error at each severity: the mean over the corruptions seen at it."""
        return {
            severity: mean_error(
                {name: counts for (name, s), counts in self.cells.items() if s == severity},
                interval=interval,
            )
            for severity in self.severities()
        }

    def mean_error(self, *, interval: float | None = None) -> Figure:
        """The mean over corruptions of the mean over severities."""
        return mean_error(
            {name: self._counts(name) for name in self.corruptions()}, interval=interval
        )

    def mce(self, *, partial: bool = False, interval: float | None = None) -> MeanCorruptionError:
        """The mean corruption error relative to AlexNet, as :func:`mce` has it."""
        errors = {name: self._counts(name) for name in self.corruptions()}
        return mce(errors, partial=partial, interval=interval)

    def mce_by_severity(self, *, partial: bool = False) -> dict[int, MeanCorruptionError]:
        """The mCE of each severity alone, over AlexNet's *mean* error of each corruption."""
        return {
            severity: mce(
                {name: counts for (name, s), counts in self.cells.items() if s == severity},
                partial=partial,
            )
            for severity in self.severities()
        }

    def __str__(self) -> str:
        return "\n".join(self._lines()) if self.cells else "no images yet"

    def _lines(self) -> Iterator[str]:
        severities = self.severities()
        yield "| " + " | ".join(["corruption", *map(str, severities), "mean", "images"]) + " |"
        yield "|---" * (len(severities) + 3) + "|"
        for name, mean in self.by_corruption().items():
            row = [self.cells.get((name, severity)) for severity in severities]
            shown = ["–" if cell is None else f"{cell.error().value:.1f}" for cell in row]
            yield _line(name, shown, mean)
        yield _line(
            "mean", [f"{f.value:.1f}" for f in self.by_severity().values()], self.mean_error()
        )


def _line(name: str, cells: list[str], mean: Figure) -> str:
    return "| " + " | ".join([name, *cells, f"{mean.value:.1f}", f"{mean.images:,}"]) + " |"
