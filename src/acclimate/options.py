"""Reading option values that were typed on a command line."""

from __future__ import annotations

from typing import Any

from acclimate.errors import AcclimateError

__all__ = ["parse_assignments", "parse_value"]

_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def parse_value(key: str, value: Any, annotation: str) -> Any:
    """Turn a word into the type an option is annotated with.

    >>> parse_value("objective.q", "0.7", "float"), parse_value("x", "none", "int | None")
    (0.7, None)
    """
    kinds = [kind.strip() for kind in annotation.split("|")]
    if "None" in kinds and (value is None or str(value).lower() == "none"):
        return None
    kind = kinds[0]
    try:
        if kind == "bool":
            return value if isinstance(value, bool) else _WORDS[str(value).lower()]
        if kind == "int":
            if isinstance(value, float) and not value.is_integer():
                raise ValueError
            return int(value)
        if kind == "float":
            return float(value)
    except (ValueError, KeyError, TypeError):
        raise AcclimateError(f"{key}: expected {annotation}, got {value!r}") from None
    return str(value)


def parse_assignments(words: list[str]) -> dict[str, str]:
    """Split ``key=value`` words.

    >>> parse_assignments(["optimizer.lr=1e-3", "teacher=epoch"])
    {'optimizer.lr': '1e-3', 'teacher': 'epoch'}
    """
    options: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise AcclimateError(f"expected part.option=value (optimizer.lr=1e-3), got {word!r}")
        options[key.strip()] = value.strip()
    return options
