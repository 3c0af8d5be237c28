"""Words that the Python calls, the command line and the files share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from acclimate.errors import AcclimateError

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
    "plain_cell",
    "plain_name",
    "printable",
    "spreadsheet_cell",
    "titled_rows",
    "user_path",
    "value_word",
]

Action = Literal["rollback", "stop", "warn", "observe", "off"]
Keep = Literal["last", "best"]
Score = Literal["epochs", "end"]
Speed = Literal["auto", "exact", "max"]
VerdictWord = Literal["helpful", "unclear", "unchanged", "harmful", "refused"]

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


_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def spreadsheet_cell(value: Any) -> Any:
    """A value for a CSV file: an apostrophe before what a spreadsheet would take for a formula.

    >>> spreadsheet_cell("=1+1"), spreadsheet_cell("cat.png"), spreadsheet_cell(-1.5)
    ("'=1+1", 'cat.png', -1.5)
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def plain_cell(cell: str) -> str:
    """What :func:`spreadsheet_cell` made a cell of.

    >>> [plain_cell(spreadsheet_cell(name)) for name in ("=1+1", "'=1+1", "'a'")]
    ['=1+1', "'=1+1", "'a'"]
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


# Control characters but tab and new line, those that change the direction of text, lone surrogates.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Text for a terminal or a page: what would act there, and not be seen, is written out.

    >>> print(printable("\x1b[2Jfog"))
    \x1b[2Jfog
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plain_name(what: str, name: str) -> str:
    """A name that may become a part of a path; one that would lead elsewhere is refused.

    >>> plain_name("shift", "../..")
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: expected a name as the shift, got the path '../..'
    """
    if name.startswith(("/", "\\")) or "\0" in name or ".." in re.split(r"[/\\]", name):
        raise AcclimateError(f"expected a name as the {what}, got the path {name!r}")
    return name


def user_path(word: str | Path) -> Path:
    """A path as people type it, ``~`` for a home; what the system cannot look at is refused.

    That nothing is there is no error: it may be made.

    >>> user_path("photos\\0")
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: cannot use the path 'photos\\x00': embedded null byte; check it
    """
    try:
        path = Path(word).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    except (OSError, RuntimeError, ValueError) as error:  # no such user; a zero byte
        reason = getattr(error, "strerror", None) or str(error)
        raise AcclimateError(f"cannot use the path {str(word)!r}: {reason}; check it") from error
    return path
