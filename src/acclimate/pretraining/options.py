"""Options of a training as words, ``margin=2``: which are the plan's, which are the method's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from acclimate.errors import AcclimateError, unknown_name
from acclimate.options import parse_assignments, parse_value
from acclimate.pretraining.methods import Method
from acclimate.pretraining.plan import Plan

__all__ = ["sorted_options"]


def sorted_options(
    words: list[str], method: type[Method], *, elsewhere: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the plan and of the method, in their types.

    A name that both have needs a prefix: ``plan.momentum=0.8``, ``method.momentum=0.99``.

    Args:
        words: as they were typed.
        method: the kind that is to be made.
        elsewhere: options of the plan that are not set here.

    >>> from acclimate.pretraining import Vanilla
    >>> sorted_options(["margin=2", "clip=1"], Vanilla)
    ({'clip': 1.0}, {'margin': 2})
    """
    kinds: dict[str, Any] = {"plan": Plan, "method": method}
    found: dict[str, dict[str, Any]] = {where: {} for where in kinds}
    for word, value in parse_assignments(words).items():
        where, key = _place(word, kinds)
        if where == "plan" and key in elsewhere:
            raise AcclimateError(
                f"--set {word}: expected --{key.replace('_', '-')} {value}, which is its own option"
            )
        found[where][key] = _parsed(key, value, str(kinds[where].__dataclass_fields__[key].type))
    return found["plan"], found["method"]


def _place(word: str, kinds: dict[str, Any]) -> tuple[str, str]:
    """Whose option a word names: its prefix says it, or the only one that has it."""
    prefix, dot, key = word.rpartition(".")
    asked = [prefix] if dot and prefix in kinds else list(kinds)
    name = key if dot and prefix in kinds else word
    having = [where for where in asked if name in kinds[where].__dataclass_fields__]
    if not having:
        known = [each for where in asked for each in kinds[where].__dataclass_fields__]
        raise unknown_name("option", name, known)
    if len(having) > 1:
        ways = " or ".join(f"{where}.{name}" for where in having)
        raise AcclimateError(f"{name} is an option of plan and method; expected {ways}, got {name}")
    return having[0], name


def _parsed(key: str, value: str, annotation: str) -> Any:
    if annotation.startswith("tuple"):
        return tuple(each.strip() for each in value.split(","))
    return parse_value(key, value, annotation)
