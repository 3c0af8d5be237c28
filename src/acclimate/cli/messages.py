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
    """Print our warnings, each once, without file and line; leave others' as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", AcclimateWarning)
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, AcclimateWarning):
                print(f"warning: {message}", file=sys.stderr)
            else:
                others(message, category, *rest, **more)

        warnings.showwarning = show
        yield
