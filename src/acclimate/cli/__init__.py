"""The command line. Heavy imports happen inside commands, so that ``--help`` is instant."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from acclimate.cli.parser import build_parser

__all__ = ["main"]

OK, USER_ERROR, INTERRUPTED = 0, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit status is 0, 2 for a user's mistake, 3 when the guard refused."""
    args = build_parser().parse_args(argv)

    from acclimate.cli.output import escape_output, show_warnings_plainly
    from acclimate.cli.processes import keep_freed_memory
    from acclimate.errors import AcclimateError
    from acclimate.text import printable

    keep_freed_memory()
    try:
        with escape_output(), show_warnings_plainly():
            status: int = args.command(args)
            sys.stdout.flush()
            return status
    except AcclimateError as error:
        print(printable(f"acclimate: {error}"), file=sys.stderr)
        return USER_ERROR
    except MemoryError as error:  # numpy's has words, Python's has none
        reason = f": {error}" if str(error) else ""
        print(
            f"acclimate: out of memory{printable(reason)}; expected images, a model and options "
            "that fit: give fewer or smaller ones",
            file=sys.stderr,
        )
        return USER_ERROR
    except SystemExit as error:  # no command of ours ends so: its status would be taken for ours
        print(
            f"acclimate: code of the model or recipe ended the program (sys.exit({error.code!r})); "
            "expected it to return, or to raise an error",
            file=sys.stderr,
        )
        return USER_ERROR
    except KeyboardInterrupt:
        print(f"acclimate: interrupted{_resuming(args)}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `acclimate list models | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _resuming(args: argparse.Namespace) -> str:
    """Whether the same command resumes where it stopped, for those that can."""
    place = args.resumes_from
    if place is None:
        return ""
    kept = getattr(args, place) is not None
    return f"; {'the same command resumes' if kept else f'with --{place} it could resume'}"
