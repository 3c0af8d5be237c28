"""Refusing options that only make sense together."""

from __future__ import annotations

from typing import Any

from acclimate.errors import AcclimateError

__all__ = ["check_colour"]


def check_colour(options: Any) -> None:
    """Refuse ``colour``, which is a way to change the brightness, where that is not changed."""
    if options.colour and not options.intensity:
        raise AcclimateError("expected intensity=true with colour=true, got intensity=false")
