"""Engines of clusters from the options of the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from acclimate.errors import AcclimateError
from acclimate.experiments.engines import Engine, WorkerSettings

__all__ = ["cluster_engine", "refuse_cluster_options"]

_RAY, _SLURM = (
    ("address", "cpus_per_job", "gpus_per_job"),
    ("slurm", "cpus_per_job", "gpus_per_job"),
)


def cluster_engine(settings: WorkerSettings, args: argparse.Namespace) -> Engine:
    """Ray's or SLURM's."""
    _refuse(args, _RAY if args.engine == "ray" else _SLURM)
    cpus = 1.0 if args.cpus_per_job is None else args.cpus_per_job
    # Other machines have other working folders.
    roots = {name: str(Path(r).expanduser().absolute()) for name, r in settings.roots.items()}
    settings = WorkerSettings(**{**vars(settings), "roots": roots})
    if args.engine == "ray":
        from acclimate.experiments.engines.ray_engine import RayEngine

        return RayEngine(
            settings,
            address=args.address,
            workers=args.workers,
            cpus_per_job=cpus,
            gpus_per_job=args.gpus_per_job,
        )
    from acclimate.experiments.engines.slurm import SlurmEngine

    gpus = 0.0 if args.gpus_per_job is None else args.gpus_per_job
    for option, value, least in (("--cpus-per-job", cpus, 1), ("--gpus-per-job", gpus, 0)):
        if value < least or not float(value).is_integer():
            raise AcclimateError(
                f"--engine slurm: expected a whole number {option} >= {least}, got {value:g}"
            )
    parameters = {"cpus_per_task": int(cpus), "gpus_per_node": int(gpus)}
    named = dict(map(_pair, args.slurm))
    # Asked for by name: submitit would take processes of this machine where it finds no SLURM.
    cluster = named.pop("cluster", "slurm")
    return SlurmEngine(
        settings,
        folder=Path(f"{args.store}-tasks").absolute(),  # beside the store, where all nodes see it
        workers=1 if args.workers is None else args.workers,
        parameters={**parameters, **named},
        cluster=cluster,
    )


def refuse_cluster_options(args: argparse.Namespace) -> None:
    """Options of clusters mean nothing to the other engines."""
    _refuse(args, ())


def _refuse(args: argparse.Namespace, allowed: tuple[str, ...]) -> None:
    for name in ("address", "cpus_per_job", "gpus_per_job", "slurm"):
        if getattr(args, name) not in (None, []) and name not in allowed:
            option = "--" + name.replace("_", "-")
            engine = "slurm" if name == "slurm" else "ray"
            got = "no --engine" if args.engine is None else f"--engine {args.engine}"
            raise AcclimateError(f"{option} is for --engine {engine}, got {got}")


def _pair(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    if not (name and equals and value):
        raise AcclimateError(f"expected --slurm NAME=VALUE, such as timeout_min=240, got {word!r}")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value
