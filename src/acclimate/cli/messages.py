"""What goes to stderr: warnings as plain lines."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from acclimate.errors import AcclimateWarning

__all__ = ["show_warnings_plainly"]


@contextmanager
def show_warnings_plainly() -> Iterator[None]:
    """Print our warnings without file and line; leave everybody else's as they are."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, AcclimateWarning):
                print(f"warning: {message}", file=sys.stderr)
            else:
                others(message, category, *rest, **more)

        warnings.showwarning = show
        yield
