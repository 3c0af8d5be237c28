"""Options of commands that run many jobs into a store. Nothing here imports torch."""

from __future__ import annotations

from typing import Any, get_args

from acclimate.text import Speed

__all__ = [
    "SCORE",
    "add_choice_option",
    "add_engine_options",
    "add_plan_options",
    "add_sweep_options",
]

SCORE = "the answers after every epoch, or at the end alone, which is faster (default: epochs)"


def add_plan_options(parser: Any) -> None:
    """What is to be run, with the names that a plan's file has."""
    add = parser.add_argument
    add("--models", "--model", nargs="+", metavar="SPEC", help="as in acclimate evaluate --model")
    add("--datasets", "--dataset", nargs="+", metavar="NAME", help="see acclimate list datasets")
    where = "where the data sets lie: DIR, or NAME=DIR; repeatable"
    add("--root", metavar="[NAME=]DIR", action="append", default=[], help=where)
    what = "fog:3, dev, test, all; cifar/fog, imagenet/test are made on the way; clean"
    add("--shifts", "--shift", nargs="+", metavar="SHIFT", help=what)
    add("--recipes", "--recipe", nargs="+", metavar="NAME", help="none is the model as it is")
    grid = "change recipes; several values make a grid; repeatable; ent:epochs=2 is for one alone"
    add("--set", "--grid", metavar="OPTION=VALUE[,...]", action="append", default=[], help=grid)
    add("--seeds", "--seed", nargs="+", type=int, metavar="N", help="of the adaptation")
    few = "only so many of each shift"
    add("--images-per-shift", "--images", type=int, metavar="N", dest="images", help=few)
    add("--weights", metavar="[MODEL=]FILE", action="append", default=[], help="for a model")
    add("--split", metavar="NAME", help="of the data sets (default: the first of each)")


def add_choice_option(parser: Any, words: str) -> None:
    """Files of ``acclimate tune --out``: one for each model, say."""
    said = f"{words}; repeatable"
    parser.add_argument("--choice", metavar="FILE", action="append", default=[], help=said)


def add_sweep_options(parser: Any) -> None:
    """Where it runs, and where results go."""
    add = parser.add_argument
    add("--incomplete", action="store_true", help="take data sets with gaps")
    add("--store", metavar="FILE", required=True, help="where results are kept; made where missing")
    add_engine_options(parser)
    add("--dry-run", action="store_true", help="say what would be run, and run nothing")
    add("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    add("--quiet", action="store_true", help="no progress bars")


def add_engine_options(parser: Any) -> None:
    """On what it runs: what ``_sweep.engine_of`` reads."""
    add = parser.add_argument
    how = "here, in several processes, on a cluster (default: processes with several GPUs)"
    add("--engine", choices=["inline", "processes", "ray", "slurm"], help=how)
    many = "processes; default: one for each GPU, or this process where there is none"
    add("--workers", type=int, metavar="N", help=many)
    add("--address", help="ray: of a cluster, auto for this machine's (default: start one here)")
    add("--cpus-per-job", type=float, metavar="N", help="ray, slurm: cores of a job (default: 1)")
    parts = "ray, slurm: GPUs of a job, for ray also 0.5 (default: 1 where there are any; slurm 0)"
    add("--gpus-per-job", type=float, metavar="N", help=parts)
    tasks = "slurm: a parameter of submitit, as slurm_partition=gpu; repeatable"
    add("--slurm", metavar="NAME=VALUE", action="append", default=[], help=tasks)
    add("--device", help="cpu, cuda, cuda:1, ... (default: all GPUs, or the CPU)")
    fast = "as in acclimate adapt (default: auto on a GPU; exact on a CPU, where auto uses a clock)"
    add("--speed", choices=get_args(Speed), help=fast)
