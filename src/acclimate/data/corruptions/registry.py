"""How a corruption becomes known by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

__all__ = ["REGISTRY", "Corruption", "corruption"]

Function = TypeVar("Function", bound=Callable[..., Tensor])


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """A function on a uint8 batch N × channels × height × width, and what it asks for.

    The published constants reach it as keyword arguments under their names in ``constants.json``.
    It returns uint8, or float values on the scale 0 to 255 that are still to be cut to it.

    Attributes:
        random: it takes `Draws` as second argument.
        colour: it is always given three channels.
        many: its costs are by the call rather than by the pixel; it wants many images at once.
        host: it works on the CPU alone.
    """

    name: str
    apply: Callable[..., Tensor]
    random: bool
    colour: bool
    many: bool
    host: bool


REGISTRY: dict[str, Corruption] = {}


def corruption(
    *, random: bool = False, colour: bool = False, many: bool = False, host: bool = False
) -> Callable[[Function], Function]:
    """Register the decorated function under its own name, and leave it as it is."""

    def register(function: Function) -> Function:
        name = function.__name__
        if name in REGISTRY:
            raise ValueError(f"two corruptions are called {name!r}")
        REGISTRY[name] = Corruption(
            name=name, apply=function, random=random, colour=colour, many=many, host=host
        )
        return function

    return register
