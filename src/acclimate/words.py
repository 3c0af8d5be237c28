"""Words that the Python calls, the command line and the files share."""

from __future__ import annotations

from typing import Literal

__all__ = ["Action", "Keep", "Score", "Speed", "VerdictWord"]

Action = Literal["rollback", "stop", "warn", "observe", "off"]
Keep = Literal["last", "best"]
Score = Literal["epochs", "end"]
Speed = Literal["auto", "exact", "max"]
VerdictWord = Literal["helpful", "neutral", "harmful", "refused"]
