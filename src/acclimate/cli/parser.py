"""Commands and their options. Nothing here imports torch."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, get_args

from acclimate._version import __version__
from acclimate.words import Action, Keep

__all__ = ["build_parser"]

_ADAPT = """\
Adapt a trained classifier to unlabelled images.

Without --model and --images it runs the embedded default: handwritten digits in fog.

  acclimate adapt
  acclimate adapt --model timm:resnet50.a1_in1k --images photos/ --out run/
  acclimate adapt --model py:mypackage.nets:build --weights net.safetensors --images photos/ \\
      --recipe ent --set optimizer.lr=1e-3 --set epochs=2

Exit status: 0, 2 for a mistake in the call, 3 when the guard refused the adapted model.
"""


def _command(module: str) -> Any:
    """The ``run`` of a command's module, imported when it is called."""
    return lambda args: import_module(f"acclimate.cli.{module}").run(args)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="acclimate",
        description="Your data distribution shifted; let the model acclimate.",
    )
    parser.add_argument("--version", action="version", version=f"acclimate {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_adapt(commands)
    _add_list(commands)
    return parser


def _add_adapt(commands: Any) -> None:
    adapt = commands.add_parser(
        "adapt",
        help="adapt a classifier to unlabelled images",
        description=_ADAPT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = adapt.add_argument
    prefixes = "torchvision:, timm:, hf:, acclimate: or py:package.module:function"
    add("--model", metavar="SPEC", help=prefixes)
    add("--weights", metavar="FILE", help="weights to fill it with: safetensors or a state dict")
    trust = "trust --weights enough to unpickle it"
    add("--unsafe-pickle", action="store_true", default=None, help=trust)
    add("--images", metavar="PATH", help="a folder of images, or an .npz or .npy file")
    add("--size", type=int, metavar="PX", help="input size, where the model has no record of it")
    add("--resize", type=int, metavar="PX", help="with --size: shorter side before the centre crop")
    scale = "with --size: one value per channel (default: ImageNet's)"
    add("--mean", type=float, nargs="+", metavar="X", help=scale)
    add("--std", type=float, nargs="+", metavar="X", help=scale)
    add("--recipe", metavar="NAME", help="how to adapt (default: rpl; see acclimate list recipes)")
    add("--set", metavar="PART.OPTION=VALUE", action="append", help="change the recipe")
    add("--batch-size", type=int, metavar="N", help="images per step; the learning rate follows")
    add("--guard", choices=get_args(Action), help="when it goes wrong (default: rollback)")
    add("--keep", choices=get_args(Keep), help="which state to hand back (default: last)")
    add("--out", metavar="DIR", help="write checkpoint, history, predictions.csv and summary there")
    add("--device", help="cpu, cuda, cuda:1, ... (default: cuda if there is one)")
    add("--seed", type=int, default=0, help="default: %(default)s")
    add("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    add("--quiet", action="store_true", help="no progress bars")
    adapt.set_defaults(command=_command("adapt"))


def _add_list(commands: Any) -> None:
    lister = commands.add_parser("list", help="list recipes or models")
    lister.add_argument("what", choices=["recipes", "models"])
    lister.add_argument("pattern", nargs="?", default="*", help="wildcards: 'rpl*', 'timm:resnet*'")
    lister.add_argument("--json", action="store_true", help="print one JSON list")
    lister.set_defaults(command=_command("listing"))
