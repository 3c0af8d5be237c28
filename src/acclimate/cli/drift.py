"""``acclimate drift``."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
from typing import Any

from acclimate.cli.images import check_path, check_source, images_to_adapt, load_model
from acclimate.cli.options import (
    add_command,
    add_device,
    add_images,
    add_json,
    add_model,
    add_quiet,
)
from acclimate.errors import AcclimateError

__all__ = ["add_parser"]

_DESCRIPTION = """\
How far images are from what a model knows, layer by layer, with an estimate of
its error on them and one line of advice. Nothing is learnt, no labels needed.

Batch norm stores the statistics of its training images to compare with. For
group and layer norm name a folder the model is known to work on (--reference).

examples:
  acclimate drift --model timm:resnet50.a1_in1k --images photos/
  acclimate drift --model timm:vit_small_patch16_224 --images photos/ \\
      --reference val/
"""


def add_parser(commands: Any) -> None:
    """``acclimate drift`` and its options."""
    groups = add_command(
        commands,
        "drift",
        run,
        summary="how far images are from what a model knows",
        description=_DESCRIPTION,
    )
    add_model(groups)
    add_images(groups, many=False)
    add = groups.data.add_argument
    add("--reference", metavar="PATH", help="images the model is known to work on")
    add("--most", type=int, metavar="N", help="look at so many of the images (default: 1000)")
    groups.running.add_argument(
        "--batch-size", type=int, metavar="N", help="images per forward pass (default: 64)"
    )
    add_json(groups)
    add_quiet(groups)
    add_device(groups)


def run(args: argparse.Namespace) -> int:
    """Compare, and print what was found."""
    if args.model is None or (args.images is None and args.dataset is None):
        missing = "--model SPEC" if args.model is None else "--images PATH"
        raise AcclimateError(f"expected both --model and --images; add {missing}")
    check_source(args)
    if args.reference is not None:
        check_path(args.reference, "--reference")
    from acclimate.guard.drift import MOST_IMAGES, drift

    with redirect_stdout(sys.stderr) if args.json else nullcontext():
        loaded = load_model(args)
        data, shift = images_to_adapt(args, loaded)
        report = drift(
            loaded,
            data,
            reference=args.reference,
            shift=shift,
            most=MOST_IMAGES if args.most is None else args.most,
            batch_size=64 if args.batch_size is None else args.batch_size,
            device=args.device,
            seed=args.seed,
            progress=not args.quiet,
        )
    print(json.dumps(report.to_dict()) if args.json else report)
    return 0
