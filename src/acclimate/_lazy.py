"""Names of a package that are imported when they are first used.

So `acclimate --help`, and tables of results, need no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

__all__ = ["imported_when_used"]


def imported_when_used(
    package: str, home: Mapping[str, str], *, modules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package, by the module each name comes from.

    ``modules`` are names that are modules themselves.

    >>> import acclimate
    >>> get, names = imported_when_used("acclimate", {"Guard": "guard"})
    >>> get("Guard") is acclimate.Guard, "Guard" in names()
    (True, True)
    """

    def get(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home, *modules})

    return get, names
