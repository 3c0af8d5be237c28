"""Commands that need no torch, in an interpreter of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

SCRIPT = """
import sys
from acclimate.cli import main
try:
    status = main({words!r})
except SystemExit as done:
    status = done.code
assert not status, status
assert "torch" not in sys.modules
"""


def run_without_torch(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What a command printed, once it is seen to have imported no torch."""
    command = [sys.executable, "-c", SCRIPT.format(words=list(words))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done
