"""Commands and the options that several of them share. Nothing here imports torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from acclimate.errors import AcclimateError
from acclimate.text import Speed

__all__ = [
    "SCORE",
    "SPEED",
    "Groups",
    "add_choice",
    "add_command",
    "add_device",
    "add_engine",
    "add_images",
    "add_json",
    "add_labels",
    "add_model",
    "add_plan",
    "add_quiet",
    "add_recipe",
    "add_where",
    "assignments",
]

SCORE = "score after every epoch, or only at the end, which is faster (default: epochs)"
SPEED = "exact: the same bits every time; auto and max: faster"
_INCOMPLETE = "accept a data set with missing files"
_SHIFT = "fog:3 of a benchmark that has it, or made on the fly: imagenet/fog:3 (@7: another draw)"


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The options of one command by topic; topics without options are not shown."""

    data: Any
    method: Any
    output: Any
    running: Any


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    summary: str,
    description: str,
    usage: str = "[options]",
    data: str = "model and data",
    resumes_from: str | None = None,
    **defaults: Any,
) -> Groups:
    """A command with empty groups of options; the description ends with examples.

    ``data`` is the title of the first group, and ``resumes_from`` names the option under which a
    stopped command finds what it has done.
    """
    about, _, examples = description.partition("\nexamples:\n")
    parser = commands.add_parser(
        name,
        help=summary,
        description=about,
        epilog=f"examples:\n{examples}" if examples else None,
        usage=f"%(prog)s {usage}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.set_defaults(command=run, resumes_from=resumes_from, **defaults)
    titles = {"data": data, "method": "method", "output": "output", "running": "running"}
    groups = Groups(**{key: parser.add_argument_group(title) for key, title in titles.items()})
    groups.running.add_argument("-h", "--help", action="help", help="show this help and exit")
    return groups


def add_model(groups: Groups) -> None:
    """--model, its weights, and how its images are prepared."""
    add = groups.data.add_argument
    prefixes = "torchvision:, timm:, hf:, paper:, acclimate: or py:package.module:function"
    add("--model", metavar="SPEC", help=prefixes)
    add("--weights", metavar="FILE", help="weights to load: safetensors or a state dict")
    count = "number of classes of --weights, where it differs from the architecture's"
    add("--num-classes", type=int, metavar="N", help=count)
    trust = "unpickle --weights, which can run code: only for files you trust"
    add("--unsafe-pickle", action="store_true", default=None, help=trust)
    add("--size", type=int, metavar="PX", help="input size, in place of the model's own")
    add("--resize", type=int, metavar="PX", help="with --size: shorter side before the centre crop")
    scale = "with --size: one value per channel (default: the model's own, or ImageNet's)"
    add("--mean", type=float, nargs="+", metavar="X", help=scale)
    add("--std", type=float, nargs="+", metavar="X", help=scale)


def add_images(groups: Groups, *, many: bool) -> None:
    """--images or --dataset, and the shift to apply to them."""
    add = groups.data.add_argument
    add("--images", metavar="PATH", help="a folder of images, an .npz or .npy file, .tar shards")
    add("--dataset", metavar="NAME", help="a benchmark instead (see acclimate list datasets)")
    add("--root", metavar="DIR", help="with --dataset: its folder; nothing is downloaded")
    add("--split", metavar="NAME", help="with --dataset: which part (default: its test split)")
    add("--incomplete", action="store_true", default=None, help=_INCOMPLETE)
    if many:
        groups_of = "; also fog, dev, test, all"
        add("--shift", metavar="SHIFT", action="append", help=f"repeatable: {_SHIFT}{groups_of}")
    else:
        add("--shift", metavar="SHIFT", help=_SHIFT)


def add_labels(groups: Groups) -> None:
    """--labels and --no-labels, which are only scored by."""
    add = groups.data.add_argument
    table = "a table with the columns file and class; index: sub-folders numbered by class"
    add("--labels", metavar="FILE", help=table)
    none = "do not take sub-folders for classes, whatever they are called"
    add("--no-labels", dest="labels", action="store_const", const="none", help=none)


def add_recipe(groups: Groups, *, default: str) -> None:
    """--recipe and what changes it."""
    add = groups.method.add_argument
    named = f"see acclimate list recipes; your own: py:module:function (default: {default})"
    add("--recipe", metavar="NAME", help=named)
    change = "change an option of the recipe; repeatable (see acclimate show recipe NAME)"
    add("--set", metavar="PART.OPTION=VALUE", action="append", help=change)
    add("--lr", metavar="X", help="learning rate, short for --set optimizer.lr=X")
    add("--epochs", metavar="N", help="passes over the images, short for --set epochs=N")


def add_plan(groups: Groups, **epochs: Any) -> None:
    """What a sweep runs, with the names that a plan's file has; bench and tune differ in epochs."""
    add = groups.data.add_argument
    add("--models", "--model", nargs="+", metavar="SPEC", help="as in acclimate evaluate --model")
    add("--weights", metavar="[MODEL=]FILE", action="append", default=[], help="weights of a model")
    add("--datasets", "--dataset", nargs="+", metavar="NAME", help="see acclimate list datasets")
    where = "folder of the data sets, or of one; repeatable; nothing is downloaded"
    add("--root", metavar="[NAME=]DIR", action="append", default=[], help=where)
    add("--split", metavar="NAME", help="which part of them (default: the first of each)")
    shifts = "clean; fog:3, dev, test, all; made on the fly: cifar/fog, imagenet/test"
    add("--shifts", "--shift", nargs="+", metavar="SHIFT", help=shifts)
    few = "use only the first N of each shift"
    add("--images-per-shift", "--images", type=int, metavar="N", dest="images", help=few)
    add("--incomplete", action="store_true", help=_INCOMPLETE)
    add = groups.method.add_argument
    named = "see acclimate list recipes; none: unadapted; your own: py:module:function"
    add("--recipes", "--recipe", nargs="+", metavar="NAME", help=named)
    grid = "change recipes; several values make a grid; ent:epochs=2 for one recipe; repeatable"
    add("--set", "--grid", metavar="OPTION=VALUE[,...]", action="append", default=[], help=grid)
    add("--lr", metavar="X[,...]", help="learning rates, short for --set optimizer.lr=X[,...]")
    add("--epochs", **epochs)
    add("--seeds", "--seed", nargs="+", type=int, metavar="N", help="default: 0")


def assignments(args: argparse.Namespace) -> list[str]:
    """What ``--set``, ``--lr`` and ``--epochs`` set, as ``option=value``.

    >>> assignments(argparse.Namespace(set=["objective.q=0.7"], lr="1e-3", epochs=None))
    ['objective.q=0.7', 'optimizer.lr=1e-3']
    """
    words = list(args.set or [])
    named = {word.partition("=")[0].strip(): word for word in words}
    for short, option in (("lr", "optimizer.lr"), ("epochs", "epochs")):
        value = getattr(args, short)
        if value is None:
            continue
        if option in named:
            raise AcclimateError(
                f"--{short} {value} and --set {named[option]} set the same option; leave one out"
            )
        words.append(f"{option}={value}")
    return words


def add_choice(group: Any, words: str) -> None:
    """Files of ``acclimate tune --out``: one for each model, for example."""
    group.add_argument(
        "--choice", metavar="FILE", action="append", default=[], help=f"{words}; repeatable"
    )


def add_where(groups: Groups) -> None:
    """Which results of a store."""
    which = "only results with model=wrn*, severity=1,5, options.optimizer.lr=1e-3; repeatable"
    groups.data.add_argument(
        "--where", metavar="COLUMN=VALUE", action="append", default=[], help=which
    )


def add_engine(groups: Groups) -> None:
    """On what a sweep runs."""
    add = groups.running.add_argument
    how = "this process, several, or a cluster (default: processes with several GPUs)"
    add("--engine", choices=["inline", "processes", "ray", "slurm"], help=how)
    many = "processes (default: one for each GPU; without a GPU only this process)"
    add("--workers", type=int, metavar="N", help=many)
    add("--device", help="cpu, cuda, cuda:1, ... (default: all GPUs, or the CPU)")
    clock = f"{SPEED} (default: auto on a GPU; exact on a CPU, where auto depends on timing)"
    add("--speed", choices=get_args(Speed), help=clock)
    add("--cpus-per-job", type=float, metavar="N", help="ray, slurm: cores of a job (default: 1)")
    parts = "ray, slurm: GPUs of a job, for ray also 0.5 (default: 1 where there are any; slurm 0)"
    add("--gpus-per-job", type=float, metavar="N", help=parts)
    add("--address", help="ray: address of a cluster, or auto (default: start one here)")
    tasks = "slurm: a parameter of submitit, as slurm_partition=gpu; repeatable"
    add("--slurm", metavar="NAME=VALUE", action="append", default=[], help=tasks)


def add_device(groups: Groups) -> None:
    """--device and --seed."""
    add = groups.running.add_argument
    add("--device", help="cpu, cuda, cuda:1, ... (default: cuda if there is one)")
    add("--seed", type=int, default=0, metavar="N", help="default: %(default)s")


def add_json(groups: Groups) -> None:
    """--json, which every command has."""
    only = "print one JSON object on stdout and nothing else"
    groups.output.add_argument("--json", action="store_true", help=only)


def add_quiet(groups: Groups) -> None:
    """--quiet, for commands with progress bars."""
    groups.output.add_argument("--quiet", action="store_true", help="no progress bars")
