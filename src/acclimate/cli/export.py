"""``acclimate export``."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext, redirect_stdout
from typing import Any

from acclimate.cli.options import add_command, add_json

__all__ = ["add_parser"]

_DESCRIPTION = """\
Write the adapted model of a finished run to one file, for use without this
package. The file takes any number of images; preprocessing, class names and the
temperature of calibrated probabilities are in its metadata. It is run and
compared with PyTorch before it appears.

examples:
  acclimate export run/ --out model.onnx
  acclimate export run/ --format torch-export --out model.pt2
  acclimate export run/ --model py:nets:build --image-shape 1 28 28 \\
      --out model.onnx
"""


def add_parser(commands: Any) -> None:
    """``acclimate export`` and its options."""
    groups = add_command(
        commands,
        "export",
        run,
        summary="write the adapted model as ONNX, torch.export or safetensors",
        description=_DESCRIPTION,
        usage="RUN --out FILE [options]",
        data="run",
    )
    add = groups.data.add_argument
    add("run", metavar="RUN", help="the folder that acclimate adapt --out wrote")
    add("--model", metavar="SPEC", help="the source model, where the run records no name for it")
    shape = "the model's input, where no preprocessing is recorded"
    add("--image-shape", type=int, nargs=3, metavar=("C", "H", "W"), help=shape)
    add = groups.output.add_argument
    add("--out", metavar="FILE", required=True, help="the file to write")
    formats = "by the ending of FILE: .onnx, .pt2, .safetensors"
    add("--format", metavar="NAME", help=f"onnx, torch-export or safetensors (default: {formats})")
    add_json(groups)


def run(args: argparse.Namespace) -> int:
    """Export, and print how the file was checked."""
    from acclimate.exporting import export

    with redirect_stdout(sys.stderr) if args.json else nullcontext():
        exported = export(
            args.run,
            args.out,
            format=args.format,
            model=args.model,
            image_shape=args.image_shape,
        )
    print(json.dumps(exported.to_dict()) if args.json else exported)
    return 0
