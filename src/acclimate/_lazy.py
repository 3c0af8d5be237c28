"""Names of a package that are imported when they are first used.

So `acclimate --help`, and tables of results, need no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["imported_when_used"]


def imported_when_used(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package, of the module in it that each name comes from.

    >>> import acclimate
    >>> get = imported_when_used("acclimate", {"Guard": "guard"})
    >>> get("Guard") is acclimate.Guard
    True
    """

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return get
