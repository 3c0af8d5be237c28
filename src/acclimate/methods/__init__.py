"""One file per published method; each ends in the recipe that has its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from acclimate.methods.dino import DINO

if TYPE_CHECKING:
    from acclimate.recipe import Recipe

__all__ = ["METHODS"]

METHODS: tuple[Recipe, ...] = (DINO,)
"""In the order in which they are listed."""
