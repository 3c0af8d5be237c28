"""The one mean over shifts: severities first, then corruptions or domains, then seeds.

No torch here, so that a table of results starts at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, sqrt
from typing import TypeAlias, TypeVar

__all__ = [
    "Shifts",
    "by_seeds",
    "like",
    "mean",
    "mean_over_seeds",
    "mean_over_shifts",
    "on_the_same",
    "spread",
]

Shifts: TypeAlias = Mapping[str | None, Mapping[int | None, float]]
"""A number for each corruption or domain, and severity."""

_K = TypeVar("_K")
_P = TypeVar("_P")
_Seed = TypeVar("_Seed")


# As in `statistics`, which takes ten times as long for its exact fractions.
def mean(numbers: Sequence[float]) -> float:
    """Of one number at least.

    >>> mean([1.0, 2.0, 6.0])
    3.0
    """
    return fsum(numbers) / len(numbers)


def spread(numbers: Sequence[float]) -> float | None:
    """The standard deviation of a sample; None of fewer than two.

    >>> spread([1.0, 3.0]) ** 2, spread([1.0])
    (2.0000000000000004, None)
    """
    if len(numbers) < 2:
        return None
    middle = mean(numbers)
    return sqrt(fsum((number - middle) ** 2 for number in numbers) / (len(numbers) - 1))


def mean_over_shifts(shifts: Shifts) -> float | None:
    """The mean over corruptions of the mean over severities: each corruption counts the same.

    >>> mean_over_shifts({"fog": {1: 10.0, 5: 30.0}, "snow": {5: 40.0}})
    30.0
    """
    return mean([mean(list(each.values())) for each in shifts.values()]) if shifts else None


def by_seeds(
    numbers: Iterable[tuple[_Seed, str | None, int | None, float]],
) -> dict[_Seed, dict[str | None, dict[int | None, float]]]:
    """Numbers with their seed, corruption and severity, sorted for the functions here.

    >>> by_seeds([(0, "fog", 1, 10.0), (0, "fog", 5, 30.0)])
    {0: {'fog': {1: 10.0, 5: 30.0}}}
    """
    found: dict[_Seed, dict[str | None, dict[int | None, float]]] = {}
    for seed, corruption, severity, number in numbers:
        found.setdefault(seed, {}).setdefault(corruption, {})[severity] = number
    return found


def mean_over_seeds(by_seed: Mapping[_K, Shifts]) -> float | None:
    """The mean over seeds of each one's mean over shifts; None where there is nothing.

    >>> mean_over_seeds({0: {"fog": {None: 10.0}}, 1: {"fog": {None: 12.0}}})
    11.0
    """
    means = [
        found for shifts in by_seed.values() if (found := mean_over_shifts(shifts)) is not None
    ]
    return mean(means) if means else None


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
