"""One number of a table: a mean over seeds of means over shifts, and how whole it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from types import MappingProxyType
from typing import TypeAlias, TypeVar

__all__ = ["Cell", "Measure", "Shifts", "cell_of", "like", "mean_of_means", "on_the_same"]

Shifts: TypeAlias = Mapping[str | None, Mapping[int | None, float]]
"""A number for each corruption and severity."""

Measure: TypeAlias = Callable[[Shifts], float | None]

_K = TypeVar("_K")
_P = TypeVar("_P")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A number of a table, with what it takes to read it.

    Attributes:
        value: the mean over seeds; None where there is nothing, or too little for the measure.
        std: over seeds; None where there is one.
        seeds: how many enter: those that ran on the most, and on the same.
        all_seeds: how many there are.
        shifts: how many corruptions (or domains) enter.
        expected_shifts: how many there are.
        parts: how many corruptions at a severity enter, over these seeds.
        expected_parts: how many there would have to be.
        images: labelled images behind one seed's number; None where that is not known.
        failed: how many results failed.

    >>> print(Cell(value=21.34, std=0.5, seeds=3, all_seeds=3, shifts=12, expected_shifts=15,
    ...            parts=180, expected_parts=225))
    21.3 ± 0.5 (12 of 15)
    """

    value: float | None
    std: float | None = None
    seeds: int = 0
    all_seeds: int = 0
    shifts: int = 0
    expected_shifts: int = 0
    parts: int = 0
    expected_parts: int = 0
    images: int | None = None
    failed: int = 0

    @property
    def complete(self) -> bool:
        """Whether everything is there that the mean is meant to be over."""
        return self.parts >= self.expected_parts and self.seeds >= self.all_seeds

    @property
    def missing(self) -> str:
        """What of it is there, in words; empty where all is.

        Parts are counted over severities and seeds too, where not only whole shifts are missing.
        """
        words = []
        if self.parts < self.expected_parts:
            if self.shifts < self.expected_shifts:
                words.append(f"{self.shifts} of {self.expected_shifts}")
            if self.parts * self.expected_shifts != self.shifts * self.expected_parts:
                words.append(f"{self.parts} of {self.expected_parts} parts")
        if self.seeds < self.all_seeds:
            words.append(f"{self.seeds} of {self.all_seeds} seeds")
        return ", ".join(words)

    def text(self, digits: int = 1) -> str:
        """As a table shows it."""
        number = "-" if self.value is None else f"{self.value:.{digits}f}"
        spread = "" if self.std is None else f" ± {self.std:.{digits}f}"
        missing = f" ({self.missing})" if self.missing and self.parts else ""
        failed = f" [{self.failed} failed]" if self.failed else ""
        return f"{number}{spread}{missing}{failed}"

    def __str__(self) -> str:
        return self.text()


def mean_of_means(shifts: Shifts) -> float | None:
    """The mean over corruptions of the mean over severities: each corruption counts the same.

    >>> mean_of_means({"fog": {1: 10.0, 5: 30.0}, "snow": {5: 40.0}})
    30.0
    """
    if not shifts:
        return None
    return _mean([_mean(list(values.values())) for values in shifts.values()])


def like(ran: Mapping[_K, frozenset[_P]]) -> list[_K]:
    """Those that ran on the most, and on the same; of several such, where there are more of them.

    The mean of one that ran on less is of other images, and tells nothing beside theirs.

    >>> like({"a": frozenset({1, 2}), "b": frozenset({2}), "c": frozenset({2, 1})})
    ['a', 'c']
    """
    alike: dict[frozenset[_P], list[_K]] = {}
    for each, places in ran.items():
        alike.setdefault(places, []).append(each)
    most = max(alike, key=lambda places: (len(places), len(alike[places])), default=frozenset())
    return alike.get(most, [])


def on_the_same(by_seed: Mapping[_K, Shifts]) -> dict[_K, Shifts]:
    """The seeds that ran on the most shifts and severities, and on the same.

    >>> whole = {"fog": {1: 10.0, 5: 30.0}}
    >>> sorted(on_the_same({0: whole, 1: {"fog": {5: 31.0}}, 2: {"fog": {1: 11.0, 5: 29.0}}}))
    [0, 2]
    """
    first = next(iter(by_seed.values()), {})
    if all(_same_places(first, each) for each in by_seed.values()):  # nearly always
        return dict(by_seed)
    ran = {
        seed: frozenset((name, severity) for name, values in shifts.items() for severity in values)
        for seed, shifts in by_seed.items()
    }
    return {seed: by_seed[seed] for seed in like(ran)}


def _same_places(one: Shifts, other: Shifts) -> bool:
    return one.keys() == other.keys() and all(
        values.keys() == other[name].keys() for name, values in one.items()
    )


def cell_of(
    by_seed: Mapping[int, Shifts],
    *,
    measure: Measure,
    shifts: int,
    severities: int,
    images: Mapping[int, int] = MappingProxyType({}),
    failed: int = 0,
) -> Cell:
    """A cell from the numbers (and images) of each seed, where so much is expected."""
    all_seeds, by_seed = len(by_seed), on_the_same(by_seed)
    numbers: Sequence[float] = [
        number for each in by_seed.values() if (number := measure(each)) is not None
    ]
    return Cell(
        value=_mean(numbers) if numbers else None,
        std=_spread(numbers) if len(numbers) > 1 else None,
        seeds=len(by_seed),
        all_seeds=all_seeds,
        shifts=min((len(each) for each in by_seed.values()), default=0),
        expected_shifts=shifts,
        parts=sum(len(values) for each in by_seed.values() for values in each.values()),
        expected_parts=shifts * severities * max(len(by_seed), 1),
        images=min((images[seed] for seed in by_seed if seed in images), default=None),
        failed=failed,
    )


# As in `statistics`, which takes ten times as long for its exact fractions.
def _mean(numbers: Sequence[float]) -> float:
    return fsum(numbers) / len(numbers)


def _spread(numbers: Sequence[float]) -> float:
    middle = _mean(numbers)
    return sqrt(fsum([(number - middle) ** 2 for number in numbers]) / (len(numbers) - 1))
