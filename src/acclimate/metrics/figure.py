"""A number with what it takes to read it: how many images, and how certain."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Figure"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured number.

    Attributes:
        value: the number, in ``unit``.
        images: how many labelled images it was computed on; None if nobody said.
        low: lower end of the confidence interval; None unless one was asked for.
        high: upper end.
        level: how often such an interval holds the true number.
        unit: "%", or "" for a share of one.

    >>> print(Figure(value=12.34, images=10_000, low=11.7, high=12.9))
    12.3 % (10,000 images, 95 % CI 11.7 to 12.9)
    >>> float(Figure(value=12.34, images=10_000))
    12.34
    """

    value: float
    images: int | None
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    unit: str = "%"

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        # A share of one needs two digits more than a percentage to say as much.
        digits = 1 if self.unit == "%" else 3
        number = f"{self.value:.{digits}f} {self.unit}".rstrip()
        if self.images is None:
            count = "number of images not stated"
        else:
            count = f"{self.images:,} image{'' if self.images == 1 else 's'}"
        if self.low is None or self.high is None:
            return f"{number} ({count})"
        interval = f"{self.low:.{digits}f} to {self.high:.{digits}f}"
        return f"{number} ({count}, {100 * self.level:g} % CI {interval})"
