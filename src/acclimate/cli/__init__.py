"""The command line. Heavy imports happen inside commands, so that ``--help`` is instant."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from acclimate.cli.parser import build_parser

__all__ = ["main"]

OK, USER_ERROR, INTERRUPTED = 0, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, 2 for a user's mistake, 3 when the guard refused."""
    args = build_parser().parse_args(argv)

    from acclimate.cli.messages import show_warnings_plainly
    from acclimate.errors import AcclimateError

    try:
        with show_warnings_plainly():
            status: int = args.command(args)
            sys.stdout.flush()
            return status
    except AcclimateError as error:
        print(f"acclimate: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        kept = getattr(args, "out", None)
        hint = "the same command goes on where it stopped" if kept else "with --out it would go on"
        print(f"acclimate: interrupted; {hint}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `acclimate list models | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
