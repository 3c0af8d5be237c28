"""What a user did wrong, in words: expected, got, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["AcclimateError", "AcclimateWarning", "unknown_name"]


class AcclimateError(Exception):
    """A mistake the user can mend. The command line prints it without a traceback and exits 2."""


class AcclimateWarning(UserWarning):
    """Something the user should know of, which did not stop the run."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> AcclimateError:
    """The error for a name nobody registered, with the nearest known one.

    >>> print(unknown_name("recipe", "rlp", ["ent", "rpl"]))
    unknown recipe 'rlp'; did you mean 'rpl'? Known: ent, rpl
    """
    names = sorted(known)
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return AcclimateError(f"unknown {kind} {name!r}{hint} Known: {', '.join(names) or 'none'}")
