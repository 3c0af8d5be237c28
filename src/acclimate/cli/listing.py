"""``acclimate list recipes|models|datasets|corruptions``."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from typing import Any

from acclimate.cli.options import add_command, add_json
from acclimate.errors import AcclimateError
from acclimate.table import Table

__all__ = ["add_parser"]

_KINDS = ["recipes", "models", "datasets", "corruptions"]
_DESCRIPTION = """\
List what there is, one a line.

examples:
  acclimate list recipes
  acclimate list models 'paper:*'
  acclimate list datasets 'imagenet*' --json
"""


def add_parser(commands: Any) -> None:
    """``acclimate list`` and its options."""
    groups = add_command(
        commands,
        "list",
        run,
        summary="list recipes, models, data sets or corruptions",
        description=_DESCRIPTION,
        usage=f"{{{','.join(_KINDS)}}} [PATTERN] [--json]",
        data="arguments",
    )
    add = groups.data.add_argument
    add("what", choices=_KINDS, nargs="?", metavar="WHAT", help=", ".join(_KINDS))
    wildcards = "wildcards: 'wrn*', 'timm:resnet*' (default: all)"
    add("pattern", nargs="?", default="*", metavar="PATTERN", help=wildcards)
    add_json(groups)


def run(args: argparse.Namespace) -> int:
    """Print what there is, one a line."""
    if args.what is None:
        raise AcclimateError("expected acclimate list recipes, models, datasets or corruptions")
    own_models = args.what == "models" and ":" not in args.pattern
    if args.what == "recipes":
        from acclimate.methods.registry import list_recipes

        rows = [[recipe.name, recipe.summary] for recipe in list_recipes(args.pattern)]
    elif args.what == "datasets":
        from acclimate.data.benchmarks import list_datasets

        rows = [[each.name, each.title, each.size] for each in list_datasets(args.pattern)]
    elif args.what == "corruptions":
        from acclimate.data.corruptions import DEV, corruptions

        names = fnmatch.filter(corruptions(), args.pattern)
        rows = [[name, "dev" if name in DEV else "test"] for name in names]
    else:
        from acclimate.models import list_models

        rows = [[name] for name in list_models(args.pattern)]
    if not rows:
        hint = f"try acclimate list {args.what}"
        if own_models:
            hint += f", or models from anywhere: '*:{args.pattern}'"
        raise AcclimateError(f"no {args.what} match {args.pattern!r}; {hint}")
    if args.json:
        print(json.dumps([row[0] for row in rows]))
        return 0
    print(Table(rows).text())
    if own_models:
        print(_elsewhere(args.pattern), file=sys.stderr)
    return 0


def _elsewhere(pattern: str) -> str:
    prefixes = ", ".join(f"'{prefix}:{pattern}'" for prefix in ("paper", "timm", "torchvision"))
    return (
        f"\nThese are the package's own. Others: {prefixes}; all: '*:{pattern}'.\n"
        "hf:NAME_OR_DIR and py:package.module:function can be loaded, not listed."
    )
