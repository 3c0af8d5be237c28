"""Commands and their options. Nothing here imports torch."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, get_args

from acclimate._version import __version__
from acclimate.cli.bench import add_options as add_bench_options
from acclimate.cli.images import add_image_options, add_model_options
from acclimate.cli.pretrain import add_options as add_pretrain_options
from acclimate.cli.report import add_options as add_report_options
from acclimate.cli.reproduce import add_options as add_reproduce_options
from acclimate.cli.results import add_options as add_results_options
from acclimate.cli.sweep_options import SCORE
from acclimate.cli.theory import add_options as add_theory_options
from acclimate.cli.tune import add_options as add_tune_options
from acclimate.text import Action, Keep, Score, Speed

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

_EVALUATE = """\
Score a classifier on labelled images: errors by shift and severity, mCE, mDE, calibration.

  acclimate evaluate --model timm:resnet50.a1_in1k --dataset imagenet-c --root data/imagenet-c
  acclimate evaluate --model acclimate:digits --images clean/ --shift imagenet/test --out scores/
  acclimate evaluate --model ... --dataset cifar10-c --root ... --shift dev --recipe rpl
"""

_PRETRAIN = """\
Train a source model on pictures of a benchmark data set that lies on this machine.

  acclimate pretrain --model acclimate:wrn-40-2 --method augmix --root data/ --out wrn/
  acclimate pretrain --model acclimate:wrn-26-2-bn --method uda-ss --dataset mnist \\
      --target mnist-m --root data/ --out digits/

OUT/model.safetensors (half precision) is what --weights takes; OUT/summary.json says what made it.
The same command goes on where it was stopped.
"""

_CORRUPT = """\
Turn clean images into a corrupted data set on disk.

  acclimate corrupt imagenet/val imagenet-c --preset imagenet
  acclimate corrupt cifar10-test.npz cifar10-c --preset cifar --shift test
  acclimate corrupt photos/ foggy/ --preset imagenet --shift fog:3

imagenet: OUT/fog/3/CLASS/NAME.JPEG, quality 85. cifar: OUT/fog.npy, five severities in a row, and
labels.npy; a single severity becomes OUT/fog-3.npz. OUT/manifest.json holds seed and constants.
Nothing has to be written to disk: --images clean/ --shift imagenet/fog:3 makes it on the way.
"""


_SHOW = """\
Print what is known of a model: its layers, how many parameters each selector would let learn, the
paper's presets and where the weights come from. Nothing is downloaded for that. Of a recipe: its
parts and options, and what else could stand in each place.

  acclimate show model paper:resnet50
  acclimate show model timm:vit_small_patch16_224.augreg_in1k --json
  acclimate show model paper:resnet50-augmix --weights checkpoint.pth.tar
  acclimate show recipe rpl
"""

_BENCH = """\
Run models × data sets × shifts × recipes × options × seeds, and keep the results in a store.

  acclimate bench --models acclimate:wrn-40-2-augmix-cifar10 --datasets cifar10 --root data/ \\
      --shifts cifar/dev --recipes none bn ent rpl --seeds 0 1 2 --set optimizer.lr=1e-2,1e-3 \\
      --store sweep.db
  acclimate bench --plan plan.yaml --store sweep.db --dry-run
  acclimate bench --plan plan.yaml --store sweep.db --workers 4

What is in the store already is not run again: the same command goes on where it was stopped.
Exit status: 0, 1 when jobs failed (the same command tries them again), 2 for a mistake in the call.
"""

_REPRODUCE = """\
Run the paper's tables and figures again, with the data and weights at hand, and print what was
measured beside what the paper prints. For all else it says what is missing, and how to get it.

  acclimate reproduce --list --root cifar10=data/cifar10
  acclimate reproduce tbl:groupnorm --root cifar10=data/cifar10 --dry-run
  acclimate reproduce groupnorm --root cifar10=data/cifar10 --images-per-shift 500 --severities 5
  acclimate reproduce tbl:table-2 --root cifar10-c=data/c --weights 'WRN-28-10 vanilla=wrn.pt'

Where there is cifar10 (or imagenet) and no cifar10-c (imagenet-c), its corruptions are made on the
way. Exit status: 0, 1 when jobs failed, 2 for a mistake in the call.
"""

_TUNE = """\
Choose learning rate, epochs and other options on the hold-out corruptions, as the paper does.

  acclimate tune --models acclimate:wrn-40-2-augmix-cifar10 --datasets cifar10 --root data/ \\
      --recipes ent rpl --set optimizer.lr=1e-2,1e-3,1e-4 --epochs 5 --store tune.db \\
      --out choice.json
  acclimate bench --choice choice.json --models acclimate:wrn-40-2-augmix-cifar10 \\
      --datasets cifar10 --root data/ --shifts cifar/test --recipes ent rpl --store test.db

A run of 5 epochs tells of 1, 2, 3 and 4 too: the choice has the number of epochs. Without a word
about optimizer.lr the paper's rates are searched: 1e-4, 1e-3, 1e-2, 5e-2. Test corruptions,
ImageNet-R, -A and -D and the test splits of WILDS are refused: WILDS chooses on its split val.
Exit status: 0, 1 when jobs failed or nothing could be chosen, 2 for a mistake in the call.
"""

_RESULTS = """\
Show what a store of results holds, as a table, or hand it on.

  acclimate results sweep.db --columns corruption
  acclimate results sweep.db --where recipe=ent,rpl --where severity=5 --rows recipe,options
  acclimate results sweep.db --value mce
  acclimate results sweep.db --export all.json

Means are over severities, then corruptions, then seeds, and over nothing else: what else differs
becomes a row of its own. A mean over less than it is meant to be over says so: (12 of 15).
"""

_REPORT = """\
Turn a store of results into one page that opens from disk: tables, plots, run details, best
practices. Plots and tables can be written for papers too.

  acclimate report sweep.db
  acclimate report sweep.db --out report.html --where dataset=cifar10 --figures fig/ --tables tab/

PNG needs pip install 'acclimate[plots]'; without it plots are SVG alone.
"""

_KEPT_IN = {
    **dict.fromkeys(("adapt", "evaluate", "corrupt", "pretrain"), "out"),
    **dict.fromkeys(("bench", "tune", "reproduce"), "store"),
}
"""The option that says where a command which was stopped goes on from."""

_THEORY = """\
Why self-learning works or collapses: the paper's two-point model as figures, and as a page to play
with.

  acclimate theory --out theory/
  acclimate theory --out theory/ --figures none
  acclimate theory --out theory/ --figures phase field --quick

DIR/theory.html opens from disk. Figures are SVG, and PNG too with pip install 'acclimate[plots]'.
"""

# The commands that have all of their options from their own module.
_OF_EXPERIMENTS = {
    "bench": (
        add_bench_options,
        "run a plan: many models, shifts and recipes, into a store",
        _BENCH,
    ),
    "tune": (add_tune_options, "choose a recipe's options on hold-out corruptions", _TUNE),
    "results": (add_results_options, "tables of a store of results, and their export", _RESULTS),
    "report": (
        add_report_options,
        "a page of a store of results, and its plots and tables as files",
        _REPORT,
    ),
    "reproduce": (add_reproduce_options, "the paper's tables and figures, run again", _REPRODUCE),
}


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
    _add_evaluate(commands)
    _add_corrupt(commands)
    _add_pretrain(commands)
    for name, (add_options, summary, description) in _OF_EXPERIMENTS.items():
        add_options(_add_command(commands, name, help=summary, description=description))
    _add_list(commands)
    _add_show(commands)
    _add_theory(commands)
    return parser


def _add_command(commands: Any, name: str, *, help: str, description: str) -> Any:
    """A command whose module has its name."""
    command = commands.add_parser(
        name,
        help=help,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=_command(name), kept_in=_KEPT_IN.get(name))
    return command


def _add_adapt(commands: Any) -> None:
    adapt = _add_command(
        commands, "adapt", help="adapt a classifier to unlabelled images", description=_ADAPT
    )
    add_model_options(adapt)
    add_image_options(adapt, many=False)
    add = adapt.add_argument
    add("--recipe", metavar="NAME", help="how to adapt (default: rpl; see acclimate list recipes)")
    add("--set", metavar="PART.OPTION=VALUE", action="append", help="change the recipe")
    add("--batch-size", type=int, metavar="N", help="images per step; the learning rate follows")
    add("--guard", choices=get_args(Action), help="when it goes wrong (default: rollback)")
    add("--keep", choices=get_args(Keep), help="which state to hand back (default: last)")
    add("--score", choices=get_args(Score), help=SCORE)
    add("--out", metavar="DIR", help="write checkpoint, history, predictions.csv and summary there")
    add("--speed", choices=get_args(Speed), help="exact: the same bits every time (default: auto)")
    _add_running(adapt)


def _add_running(command: Any) -> None:
    add = command.add_argument
    add("--device", help="cpu, cuda, cuda:1, ... (default: cuda if there is one)")
    add("--seed", type=int, default=0, help="default: %(default)s")
    _add_output(command)


def _add_output(command: Any) -> None:
    add = command.add_argument
    add("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    add("--quiet", action="store_true", help="no progress bars")


def _add_evaluate(commands: Any) -> None:
    command = _add_command(
        commands,
        "evaluate",
        help="score a classifier on a labelled data set, shift by shift",
        description=_EVALUATE,
    )
    add_model_options(command)
    add_image_options(command, many=True)
    add = command.add_argument
    add("--recipe", metavar="NAME", help="adapt to each shift anew (default: as the model is)")
    add("--set", metavar="PART.OPTION=VALUE", action="append", help="change the recipe")
    add("--clean", metavar="PATH", help="with --recipe: source images, to measure forgetting on")
    add("--batch-size", type=int, metavar="N", help="images at a time (default: 128)")
    add("--interval", type=float, metavar="LEVEL", help="bootstrap interval, such as 0.95")
    add("--out", metavar="DIR", help="keep results there; the same command goes on from them")
    _add_running(command)


def _add_pretrain(commands: Any) -> None:
    command = _add_command(
        commands,
        "pretrain",
        help="train a source model: plainly, with AugMix, or on two domains",
        description=_PRETRAIN,
    )
    add_pretrain_options(command)
    _add_running(command)


def _add_corrupt(commands: Any) -> None:
    command = _add_command(
        commands,
        "corrupt",
        help="turn clean images into an ImageNet-C or CIFAR-10-C of your own",
        description=_CORRUPT,
    )
    add = command.add_argument
    add("source", metavar="SRC", help="a folder of images, or an .npz or .npy file")
    add("out", metavar="OUT", help="a folder of its own; the same command goes on from it")
    add("--preset", choices=["imagenet", "cifar"], required=True, help="constants and layout")
    which = "all, dev, test, NAME or NAME:SEVERITY; repeatable (default: all)"
    add("--shift", metavar="SHIFT", action="append", help=which)
    add("--size", type=int, metavar="PX", help="of folders: default 224 for imagenet, 32 for cifar")
    add("--workers", type=int, metavar="N", help="threads (default: one for each core)")
    add("--seed", type=int, default=0, help="default: %(default)s")
    _add_output(command)


def _add_list(commands: Any) -> None:
    lister = commands.add_parser("list", help="list recipes, models, data sets or corruptions")
    kinds = ["recipes", "models", "datasets", "corruptions"]
    lister.add_argument("what", choices=kinds, nargs="?", help=", ".join(kinds))
    lister.add_argument("pattern", nargs="?", default="*", help="wildcards: 'wrn*', 'timm:resnet*'")
    lister.add_argument("--json", action="store_true", help="print one JSON list")
    lister.set_defaults(command=_command("listing"))


def _add_show(commands: Any) -> None:
    show = _add_command(
        commands,
        "show",
        help="what is known of a model or a recipe: layers, parameters, weights; parts, options",
        description=_SHOW,
    )
    add = show.add_argument
    add("what", choices=["model", "recipe"])
    named = "a model with its prefix (see acclimate list models 'paper:*'), or a recipe"
    add("name", metavar="NAME", help=named)
    add("--weights", metavar="FILE", help="also fill it, to see whether the file fits")
    add("--num-classes", type=int, metavar="N", help="where it is not the architecture's own")
    add("--unsafe-pickle", action="store_true", help="trust --weights enough to unpickle it")
    add("--json", action="store_true", help="print one JSON object on stdout and nothing else")


def _add_theory(commands: Any) -> None:
    command = _add_command(
        commands,
        "theory",
        help="figures and an interactive page on when self-learning collapses",
        description=_THEORY,
    )
    add_theory_options(command)
    _add_output(command)
