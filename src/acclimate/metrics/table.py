"""Errors by corruption and severity, counted as they come."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from acclimate.data.labels import Scoring
from acclimate.errors import AcclimateError
from acclimate.metrics.error import ErrorCounts
from acclimate.metrics.figure import Figure
from acclimate.metrics.relative_error import SEVERITIES, RelativeError, mce, mean_error

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

    def __add__(self, other: ErrorTable) -> ErrorTable:
        """The counts of both: of another process, or another part of the set."""
        none = ErrorCounts()
        return ErrorTable(
            {
                cell: self.cells.get(cell, none) + other.cells.get(cell, none)
                for cell in {**self.cells, **other.cells}
            }
        )

    def corruptions(self) -> list[str]:
        """The corruptions seen, in the order they came."""
        return list(dict.fromkeys(name for name, _ in self.cells))

    def severities(self) -> list[int]:
        """The severities seen, weakest first."""
        return sorted({severity for _, severity in self.cells})

    def _errors(self) -> dict[str, list[ErrorCounts]]:
        """The counts of each corruption, weakest severity first."""
        found: dict[str, list[ErrorCounts]] = {name: [] for name in self.corruptions()}
        for name, severity in sorted(self.cells, key=lambda cell: cell[1]):
            found[name].append(self.cells[name, severity])
        return found

    def _at(self, severity: int) -> dict[str, ErrorCounts]:
        return {name: counts for (name, each), counts in self.cells.items() if each == severity}

    def by_corruption(self, *, interval: float | None = None) -> dict[str, Figure]:
        """The error of each corruption: the mean over its severities."""
        return {
            name: mean_error({name: counts}, interval=interval)
            for name, counts in self._errors().items()
        }

    def by_severity(self, *, interval: float | None = None) -> dict[int, Figure]:
        """The error at each severity: the mean over the corruptions seen at it."""
        return {s: mean_error(self._at(s), interval=interval) for s in self.severities()}

    def mean_error(self, *, interval: float | None = None) -> Figure:
        """The mean over corruptions of the mean over severities."""
        return mean_error(self._errors(), interval=interval)

    def mce(self, *, partial: bool = False, interval: float | None = None) -> RelativeError:
        """The mean corruption error relative to AlexNet, as :func:`mce` has it."""
        return mce(self._errors(), partial=partial, interval=interval)

    def mce_by_severity(self, *, partial: bool = False) -> dict[int, RelativeError]:
        """The mCE of each severity alone, over AlexNet's *mean* error of each corruption."""
        return {s: mce(self._at(s), partial=partial) for s in self.severities()}

    def __str__(self) -> str:
        if not self.cells:
            return "no images yet"
        severities = self.severities()
        lines = [["corruption", *map(str, severities), "mean", "images"]]
        for name, mean in self.by_corruption().items():
            row = [self.cells.get((name, severity)) for severity in severities]
            shown = ["–" if cell is None else f"{cell.error().value:.1f}" for cell in row]
            lines.append([name, *shown, f"{mean.value:.1f}", f"{mean.images:,}"])
        total = self.mean_error()
        means = [f"{figure.value:.1f}" for figure in (*self.by_severity().values(), total)]
        lines.append(["mean", *means, f"{total.images:,}"])
        head, *body = ("| " + " | ".join(line) + " |" for line in lines)
        return "\n".join([head, "|---" * (len(severities) + 3) + "|", *body])
