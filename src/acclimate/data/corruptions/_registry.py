"""How a corruption becomes known by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from acclimate.data.corruptions._pixels import Pixels

__all__ = ["REGISTRY", "Corruption", "corruption"]

Function = TypeVar("Function", bound=Callable[..., Pixels])


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """A function on one picture (height × width × channels, uint8), and what it asks for.

    The published constants reach it as keyword arguments under their names in ``constants.json``.
    A ``random`` one takes a `numpy.random.Generator` as second argument. One that works in
    ``colour`` is always given three channels.
    """

    name: str
    apply: Callable[..., Pixels]
    random: bool
    colour: bool


REGISTRY: dict[str, Corruption] = {}


def corruption(*, random: bool = False, colour: bool = False) -> Callable[[Function], Function]:
    """Register the decorated function under its own name, and leave it as it is."""

    def register(function: Function) -> Function:
        name = function.__name__
        if name in REGISTRY:
            raise ValueError(f"two corruptions are called {name!r}")
        REGISTRY[name] = Corruption(name=name, apply=function, random=random, colour=colour)
        return function

    return register
