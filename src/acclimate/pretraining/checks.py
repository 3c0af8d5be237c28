"""Refusing options that make no sense, in the words that recipes use for theirs."""

from __future__ import annotations

import math
from typing import Any, cast

from acclimate.errors import AcclimateError
from acclimate.parts import Part, check_range

__all__ = ["check_colour", "check_option"]


def check_option(
    options: object,
    name: str,
    *,
    low: float,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Refuse a field of a dataclass that is not a finite number in its range; None is none.

    >>> from acclimate.pretraining import Vanilla
    >>> check_option(Vanilla(margin=4), "margin", low=5)
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected margin >= 5, got 4
    """
    part = cast(Part, options)  # it asks for no more than the fields
    check_range(part, name, low=low, high=high, open_low=open_low, open_high=open_high)


def check_colour(options: Any) -> None:
    """Refuse ``colour``, which is a way to change the brightness, where that is not changed."""
    if options.colour and not options.intensity:
        raise AcclimateError("expected intensity=true with colour=true, got intensity=false")
