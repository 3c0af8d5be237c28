"""Imports of packages that come with an extra, and the words for when they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from acclimate.errors import AcclimateError

__all__ = ["import_optional"]


def import_optional(package: str, *, extra: str) -> Any:
    """The module ``package``, or an error that says which extra brings it.

    >>> import_optional("no_such_package", extra="models")
    Traceback (most recent call last):
    acclimate.errors.AcclimateError: this needs no_such_package, which is not installed;
    run: pip install 'acclimate[models]'
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        # A package that is there but lacks something of its own is not ours to explain.
        if error.name is None or error.name != package.partition(".")[0]:
            raise
        raise AcclimateError(
            f"this needs {error.name}, which is not installed; "
            f"run: pip install 'acclimate[{extra}]'"
        ) from error
