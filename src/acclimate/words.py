"""Words that the Python calls, the command line and the files share."""

from __future__ import annotations

from typing import Literal

__all__ = ["Action", "Keep", "Score", "Speed", "VerdictWord", "counted"]

Action = Literal["rollback", "stop", "warn", "observe", "off"]
Keep = Literal["last", "best"]
Score = Literal["epochs", "end"]
Speed = Literal["auto", "exact", "max"]
VerdictWord = Literal["helpful", "neutral", "harmful", "refused"]


def counted(number: int, what: str) -> str:
    """A count in words.

    >>> counted(1, "model"), counted(1200, "model")
    ('1 model', '1,200 models')
    """
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
