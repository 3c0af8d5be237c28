"""Colours and dashes of recipes, the same in all figures of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from acclimate.bench.job import UNADAPTED
from acclimate.report.colours import SERIES
from acclimate.report.settings import Panel, Setting, ranked

__all__ = ["Look", "looks"]

_DASHES = ("", "6 4", "2 3")


class Look(NamedTuple):
    """How a recipe is drawn; ``again`` is how often its colour was given away before."""

    colour: str
    dash: str = ""
    again: int = 0


def looks(found: Mapping[Panel, Iterable[Setting]]) -> dict[str, Look]:
    """By recipe, of all that a page has: a figure that lacks one must not recolour the others.

    The model as it is is grey. Past the last colour, the first comes again with dashes.

    >>> panel = Panel("wrn", "", "cifar10", "", "cifar", 0, "test", 0)
    >>> [look.colour for look in looks({panel: [Setting("none"), Setting("ent")]}).values()]
    ['#888888', '#0072b2']
    """
    recipes = {setting.recipe for settings in found.values() for setting in settings}
    coloured = sorted((r for r in recipes if r != UNADAPTED), key=lambda r: ranked(Setting(r)))
    chosen = {UNADAPTED: Look("#888888")}
    for number, recipe in enumerate(coloured):
        again, place = divmod(number, len(SERIES))
        chosen[recipe] = Look(SERIES[place], _DASHES[again % len(_DASHES)], again)
    return chosen
