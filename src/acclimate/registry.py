"""Names for things: one small table per kind, open to users, with the nearest name on a typo."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any, Generic, TypeVar

from acclimate.errors import AcclimateError, AcclimateWarning, unknown_name

__all__ = [
    "Registry",
    "call_found",
    "find_object",
    "parse_assignments",
    "parse_value",
]

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
        """Decorator: :meth:`add` a value under a name."""

        def enter(value: T) -> T:
            self.add(name, value)
            return value

        return enter

    def add(self, name: str, value: T) -> None:
        """Enter a value under a name; one that has it already is replaced, with a warning.

        So a notebook's cell can be run twice.
        """
        if self._entries.get(name, value) is not value:
            warnings.warn(
                f"the {self.kind} {name!r} was registered before; the new one replaces it",
                AcclimateWarning,
                stacklevel=3,
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


def find_object(reference: str, *, what: str = "function") -> Any:
    """What ``package.module:name`` refers to; modules in the current folder are found too.

    >>> find_object("math:sqrt")(4.0)
    2.0
    """
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise AcclimateError(
            f"expected py:package.module:{what}, for example py:my_module:my_{what}, "
            f"got 'py:{reference}'"
        )
    with current_folder_importable():
        module = _import(module_name)
    found: Any = module
    for each in name.split("."):
        if not hasattr(found, each):
            public = [key for key, value in vars(module).items() if callable(value)]
            known = [key for key in public if not key.startswith("_")]
            raise unknown_name(f"{what} in {module_name}", name, known)
        found = getattr(found, each)
    return found


def call_found(function: Callable[[], Any], name: str) -> Any:
    """What a user's function at ``name`` returns; it may import from the current folder."""
    try:
        with current_folder_importable():
            return function()
    except AcclimateError:
        raise
    except (Exception, SystemExit) as error:
        failed = f"{type(error).__name__}: {error}"
        raise AcclimateError(f"{name}, called without arguments, failed: {failed}") from error


@contextmanager
def current_folder_importable() -> Iterator[None]:
    """Find modules in the current folder too, as ``python`` does and an installed command not."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(folder)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # What the user's module itself fails to import is named as such.
        own = error.name is not None and f"{name}.".startswith(f"{error.name}.")
        raise AcclimateError(
            f"no module {name!r}; expected it in {os.getcwd()} or installed"
            if own
            else f"{name} could not be imported: {error}"
        ) from error
    except (Exception, SystemExit) as error:
        raise AcclimateError(
            f"{name} could not be imported: {type(error).__name__}: {error}"
        ) from error


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
