"""Our own warnings as notes of a result, where nobody watches stderr."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from acclimate.errors import AcclimateWarning

__all__ = ["heard"]


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """What is warned of in the block, each once; there when it is left, and shown to nobody.

    >>> with heard() as notes:
    ...     warnings.warn("it rains", AcclimateWarning)
    ...     warnings.warn("it rains", AcclimateWarning)
    >>> notes
    ['it rains']
    """
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AcclimateWarning)
        yield notes
    ours = (str(each.message) for each in caught if issubclass(each.category, AcclimateWarning))
    notes += dict.fromkeys(ours)
