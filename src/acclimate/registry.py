"""Names for things: one small table per kind, open to users, with the nearest name on a typo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar

from acclimate.errors import AcclimateError, unknown_name

__all__ = ["Registry", "parse_assignments", "parse_value"]

T = TypeVar("T")


class Registry(Generic[T]):
    """A table from names to values of one kind.

    >>> shapes: Registry[type] = Registry("shape")
    >>> @shapes.register("circle")
    ... class Circle: ...
    >>> shapes["circle"] is Circle, shapes.names("c*")
    (True, ['circle'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: enter a value under a name nobody has taken."""

        def enter(value: T) -> T:
            self.add(name, value)
            return value

        return enter

    def add(self, name: str, value: T) -> None:
        """Enter a value under a name nobody has taken."""
        if name in self._entries:
            raise AcclimateError(
                f"the {self.kind} {name!r} is registered already; choose another name"
            )
        self._entries[name] = value

    def names(self, pattern: str = "*") -> list[str]:
        """The names that match a wildcard pattern, sorted."""
        return sorted(name for name in self._entries if fnmatchcase(name, pattern))

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise unknown_name(self.kind, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


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
