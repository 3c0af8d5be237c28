"""Which corruptions, at which severities: all, dev, test, fog, fog:3."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.data.corruptions import DEV, SEVERITIES, TEST
from acclimate.errors import AcclimateError, unknown_name

__all__ = ["choose_shifts"]

_GROUPS = {"all": (*TEST, *DEV), "dev": DEV, "test": TEST}


def choose_shifts(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The severities asked for of each corruption, in the benchmark's order.

    >>> choose_shifts(["fog:3", "snow", "fog:1"])
    {'snow': (1, 2, 3, 4, 5), 'fog': (1, 3)}
    >>> len(choose_shifts(["all"]))
    19
    """
    if not words:
        raise AcclimateError("expected at least one shift: all, dev, test, NAME or NAME:SEVERITY")
    asked: dict[str, set[int]] = {}
    for word in words:
        if "/" in word:
            raise AcclimateError(
                f"expected all, dev, test, NAME or NAME:SEVERITY, got {word!r}; the preset has an "
                "option of its own"
            )
        name, colon, severity = word.partition(":")
        for each in _GROUPS.get(name, (name,)):
            if each not in _GROUPS["all"]:
                raise unknown_name("shift", each, (*_GROUPS, *_GROUPS["all"]))
            asked.setdefault(each, set()).update(_severities(word, severity if colon else None))
    return {name: tuple(sorted(asked[name])) for name in _GROUPS["all"] if name in asked}


def _severities(word: str, severity: str | None) -> tuple[int, ...]:
    if severity is None:
        return SEVERITIES
    if severity not in map(str, SEVERITIES):
        raise AcclimateError(f"expected a severity of 1, 2, 3, 4 or 5, got {word!r}")
    return (int(severity),)
