"""How much of a table is run: all of it, or a small version that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from acclimate.corruption_names import SEVERITIES, plain_shift
from acclimate.errors import AcclimateError

__all__ = ["Scope"]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What is left out of every measurement.

    Attributes:
        images: only so many of each shift; None is all.
        severities: only these, where the paper has the mean of five.
        shifts: only these corruptions or domains; none named is all.
        incomplete: data sets with gaps are taken as they are.

    >>> Scope(images=20, severities=(5,)).words
    '20 images a shift, severity 5 only'
    >>> Scope().small, Scope().words
    (False, '')
    """

    images: int | None = None
    severities: tuple[int, ...] = SEVERITIES
    shifts: tuple[str, ...] = ()
    incomplete: bool = False

    def __post_init__(self) -> None:
        if self.images is not None and self.images < 1:
            raise AcclimateError(f"expected --images-per-shift >= 1, got {self.images}")
        wrong = [severity for severity in self.severities if severity not in SEVERITIES]
        if wrong or not self.severities:
            raise AcclimateError(
                f"expected severities of 1 to 5, got {wrong[0] if wrong else 'none'}"
            )
        object.__setattr__(self, "severities", tuple(sorted(set(self.severities))))

    @property
    def small(self) -> bool:
        """Whether anything is left out, so that no number compares with a published one."""
        return bool(self.words)

    @property
    def words(self) -> str:
        """What is left out, for every line of the output; empty where nothing is."""
        said = []
        if self.images is not None:
            said.append(f"{self.images:,} images a shift")
        if self.severities != SEVERITIES:
            many = "severities" if len(self.severities) > 1 else "severity"
            said.append(f"{many} {', '.join(map(str, self.severities))} only")
        if self.shifts:
            said.append(f"{', '.join(self.shifts)} only")
        if self.incomplete:
            said.append("data sets with gaps allowed")
        return ", ".join(said)

    def severities_of(self, asked: int | None) -> tuple[int, ...]:
        """Those of a cell that are run; a cell without one means all five."""
        return tuple(s for s in self.severities if asked in (None, s))

    def has(self, shift: str | None) -> bool:
        """Whether a corruption or domain is run; images without a shift always are."""
        return shift is None or not self.shifts or plain_shift(shift) in self.shifts

    def to_dict(self) -> dict[str, Any] | None:
        """Plain values, for JSON; None where nothing is left out."""
        return {**vars(self), "words": self.words} if self.small else None

    @classmethod
    def of(
        cls,
        *,
        images: int | None = None,
        severities: Sequence[int] | None = None,
        shifts: Sequence[str] = (),
        incomplete: bool = False,
    ) -> Scope:
        """From the words of the command line, where None means all."""
        return cls(
            images=images,
            severities=SEVERITIES if severities is None else tuple(severities),
            shifts=tuple(shifts),
            incomplete=incomplete,
        )
