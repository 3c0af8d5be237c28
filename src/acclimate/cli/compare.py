"""``acclimate compare``."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
from typing import Any, get_args

from acclimate.cli.images import check_source, images_to_adapt, load_model
from acclimate.cli.options import (
    SPEED,
    add_command,
    add_device,
    add_images,
    add_json,
    add_labels,
    add_model,
    add_quiet,
)
from acclimate.cli.output import write_page
from acclimate.cli.processes import refuse_launched
from acclimate.errors import AcclimateError
from acclimate.text import Speed, user_path

__all__ = ["add_parser"]

_DESCRIPTION = """\
Which recipe for these images? Each is run on them, and they are ranked by the
estimated error of the model it returns, or by the error on labelled images
where there are some: a hundred are enough to tell apart what matters. Labels
are those of sub-folders named by class, or of a table with the columns file
and class.

examples:
  acclimate compare --model timm:resnet50.a1_in1k --images photos/
  acclimate compare --model timm:resnet50.a1_in1k --images photos/ \\
      --recipes none bn ent auto --labels hundred.csv --out compared/
"""

PAGE = "report.html"


def add_parser(commands: Any) -> None:
    """``acclimate compare`` and its options."""
    groups = add_command(
        commands,
        "compare",
        run,
        summary="rank recipes on your own images",
        description=_DESCRIPTION,
        resumes_from="out",
    )
    add_model(groups)
    add_images(groups, many=False)
    add_labels(groups)
    add = groups.method.add_argument
    named = "see acclimate list recipes (default: none bn ent rpl auto)"
    add("--recipes", "--recipe", nargs="+", metavar="NAME", help=named)
    add("--batch-size", type=int, metavar="N", help="images per step; the learning rate follows")
    keep = "write a page, comparison.json and the run of each recipe there"
    groups.output.add_argument("--out", metavar="DIR", help=keep)
    add_json(groups)
    add_quiet(groups)
    groups.running.add_argument("--speed", choices=get_args(Speed), help=f"{SPEED} (default: auto)")
    add_device(groups)


def run(args: argparse.Namespace) -> int:
    """Compare, and print the table."""
    if args.model is None or (args.images is None and args.dataset is None):
        missing = "--model SPEC" if args.model is None else "--images PATH"
        raise AcclimateError(f"expected both --model and --images; add {missing}")
    refuse_launched("--device, one process")
    from acclimate.adaptation.auto import AUTO
    from acclimate.adaptation.compare import COMPARISON, RECIPES, compare
    from acclimate.methods.registry import get_recipe

    recipes = args.recipes or RECIPES
    for recipe in recipes:
        if recipe != AUTO:
            get_recipe(recipe)  # a typo shows before a model is loaded
    check_source(args)
    with redirect_stdout(sys.stderr) if args.json else nullcontext():
        loaded = load_model(args)
        if not args.json:
            print(loaded.describe(), end="\n\n", flush=True)
        data, shift = images_to_adapt(args, loaded)
        found = compare(
            loaded,
            data,
            recipes,
            batch_size=args.batch_size,
            labels=args.labels,
            shift=shift,
            out=args.out,
            device=args.device,
            seed=args.seed,
            speed=args.speed or "auto",
            progress=not args.quiet,
        )
    print(json.dumps(found.to_dict()) if args.json else found)
    if args.out is not None:
        from acclimate.report.comparison import comparison_page

        out = user_path(args.out)
        written = write_page(out / PAGE, lambda: comparison_page(found))
        if not args.json:
            files = ", ".join([*written, COMPARISON])
            print(f"written to {out}: {files}, and a folder for each recipe")
    return 0
