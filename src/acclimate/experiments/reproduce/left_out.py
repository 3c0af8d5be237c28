"""Leave-one-out: each domain with the setting that is best on all others (Appendix D)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TypeVar

__all__ = ["left_out"]

_D = TypeVar("_D")


def left_out(settings: Sequence[Mapping[_D, float]]) -> dict[_D, float]:
    """The error on each domain, of the setting with the lowest mean error on the others.

    Args:
        settings: of each, the error by domain. They are of the same domains, two at least.

    >>> slow = {"real": 10, "sketch": 40, "clipart": 30}
    >>> fast = {"real": 25, "sketch": 26, "clipart": 27}
    >>> left_out([slow, fast])
    {'real': 25, 'sketch': 40, 'clipart': 30}
    """

    def elsewhere(errors: Mapping[_D, float], domain: _D) -> float:
        return fmean(error for other, error in errors.items() if other != domain)

    return {
        domain: min(settings, key=lambda errors: elsewhere(errors, domain))[domain]
        for domain in settings[0]
    }
