"""A server whose model adapts to the images it is sent.

``Server`` is the whole of it without HTTP; ``make_app`` puts FastAPI over it (extra ``serve``).

>>> from acclimate import serve
>>> serve.Settings(mode="shadow").every
10
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acclimate._lazy import imported_when_used

if TYPE_CHECKING:
    from acclimate.serve.app import make_app as make_app
    from acclimate.serve.replica import Answer as Answer
    from acclimate.serve.server import Server as Server
    from acclimate.serve.settings import Settings as Settings
    from acclimate.serve.versions import Version as Version

_HOME = {
    "Answer": "replica",
    "Server": "server",
    "Settings": "settings",
    "Version": "versions",
    "make_app": "app",
}

__all__ = ["Answer", "Server", "Settings", "Version", "make_app"]

__getattr__, __dir__ = imported_when_used(__name__, _HOME)
