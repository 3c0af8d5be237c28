"""The whole command line, assembled from its commands. Nothing here imports torch."""

from __future__ import annotations

import argparse

from acclimate._version import __version__
from acclimate.cli import (
    adapt,
    bench,
    compare,
    corrupt,
    drift,
    evaluate,
    export,
    listing,
    pretrain,
    report,
    reproduce,
    results,
    serve,
    show,
    theory,
    tune,
)

__all__ = ["build_parser"]

_START = """\
Start with acclimate adapt, a small example that needs no data.
acclimate COMMAND --help explains a command and shows examples.
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="acclimate",
        description="Your data distribution shifted; let the model acclimate.",
        epilog=_START,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="version", version=f"acclimate {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (
        adapt,
        compare,
        serve,
        drift,
        evaluate,
        bench,
        tune,
        results,
        report,
        reproduce,
    ):
        command.add_parser(commands)
    for command in (export, listing, show, corrupt, pretrain, theory):
        command.add_parser(commands)
    return parser
