"""Words that the Python calls, the command line and the files share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

__all__ = [
    "DEFAULTS",
    "Action",
    "Keep",
    "Score",
    "Speed",
    "VerdictWord",
    "counted",
    "first_difference",
    "option_words",
    "titled_rows",
    "value_word",
]

Action = Literal["rollback", "stop", "warn", "observe", "off"]
Keep = Literal["last", "best"]
Score = Literal["epochs", "end"]
Speed = Literal["auto", "exact", "max"]
VerdictWord = Literal["helpful", "neutral", "harmful", "refused"]

DEFAULTS = "the recipe's defaults"
"""Where there are no options."""


def counted(number: int, what: str) -> str:
    """A count in words.

    >>> counted(1, "model"), counted(1200, "model")
    ('1 model', '1,200 models')
    """
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def first_difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[str, str, str]:
    """The first option in which two records differ, down to the innermost, and both values.

    >>> first_difference({"optimizer": {"lr": 0.1}}, {"optimizer": {"lr": 0.2}})
    ('optimizer.lr', '0.1', '0.2')
    """
    key = next(each for each in {**there, **here} if there.get(each) != here.get(each))
    one, other = there.get(key), here.get(key)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        inner, *values = first_difference(one, other)
        return f"{key}.{inner}", values[0], values[1]
    return key, json.dumps(one, default=str), json.dumps(other, default=str)


def titled_rows(title: str, rows: Mapping[str, object]) -> str:
    """Named values under a title, a line each.

    >>> print(titled_rows("a run", {"images": 8, "recipe": "rpl"}))
    a run
      images  8
      recipe  rpl
    """
    width = max(map(len, rows))
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows.items())])


def value_word(value: object) -> str:
    """A value as people write it.

    >>> value_word(1e-3), value_word(10**30), value_word("affine")
    ('0.001', '1e+30', 'affine')
    """
    # A whole number may be a rate of 1e30, read back from JSON: no row is wide enough for that.
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.12g}" if number else str(value)


def option_words(
    options: Iterable[tuple[str, object]], *, between: str = ", ", none: str = ""
) -> str:
    """Options in a line.

    >>> option_words([("epochs", 5), ("optimizer.lr", 0.001)]), option_words([], none="none")
    ('epochs=5, optimizer.lr=0.001', 'none')
    """
    return between.join(f"{name}={value_word(value)}" for name, value in options) or none
