"""Names for things: one small table per kind, open to users, with the nearest name on a typo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from acclimate.errors import AcclimateError, unknown_name

__all__ = ["Registry"]

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
