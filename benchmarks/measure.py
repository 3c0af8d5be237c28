"""The measured tables of this project: plans that are run, kept and exported.

    python benchmarks/measure.py run cifar10c --root DATA --store cifar10c.db [--workers 6]
    python benchmarks/measure.py export cifar10c --store cifar10c.db

A plan (plans/NAME.yaml) is a list of stages. Each lets ``acclimate tune`` choose options on
hold-out shifts, and measures the choice with ``acclimate bench``: the words in it are those of the
command line, and ``bench`` takes over models and data sets. What is in the store already is not run
again: stop it and go on at any time. ``export`` keeps a line for every measurement in
results/NAME.json, and the choices in results/choices; headline.py and methods.py make tables of
them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from acclimate.cli import main as acclimate
from acclimate.experiments import Result, Store

HERE = Path(__file__).parent
SHARED = ("models", "datasets", "weights")


def words(stage: Mapping[str, Any]) -> list[str]:
    """A part of a stage as the command line has it.

    >>> words({"models": ["a", "b"], "set": ["x=1", "y=2"], "epochs": 3, "forgetting": True})
    ['--models', 'a', 'b', '--set', 'x=1', '--set', 'y=2', '--epochs', '3', '--forgetting']
    """
    found: list[str] = []
    for name, value in stage.items():
        if name in ("set", "weights"):  # said once for each
            found += [word for each in value for word in (f"--{name}", str(each))]
        elif value is True:
            found.append(f"--{name}")
        else:
            values = value if isinstance(value, list) else [value]
            found += [f"--{name}", *map(str, values)]
    return found


def choice_file(store: Path, tune: Mapping[str, Any]) -> Path:
    """Where the choice of a stage is written: the same search, the same file."""
    model = str(tune["models"][0]).partition(":")[2] or "model"
    digest = hashlib.blake2b(json.dumps(tune, sort_keys=True).encode(), digest_size=4).hexdigest()
    return store.with_name(f"{store.stem}.{model}.{digest}.json")


def run(args: argparse.Namespace) -> int:
    """Choose and measure, stage by stage; the worst exit status."""
    common = ["--root", str(args.root), "--store", str(args.store), "--quiet"]
    if args.workers:
        common += ["--engine", "processes", "--workers", str(args.workers)]
    status = 0
    for number, stage in enumerate(plan(args.name), start=1):
        if args.stages and number not in args.stages:
            continue
        tune, bench = dict(stage.get("tune", {})), dict(stage["bench"])
        bench = {name: tune[name] for name in SHARED if name in tune} | bench
        for part in filter(None, (tune, bench)):  # a stage may choose nothing
            if args.images:
                part["images"] = min(args.images, part.get("images", args.images))
        choice: list[str] = []
        if tune:
            file = choice_file(args.store, tune)
            choice = ["--choice", str(file)]
            status = max(status, acclimate(["tune", *words(tune), *common, "--out", str(file)]))
        status = max(status, acclimate(["bench", *words(bench), *common, *choice]))
    return status


def plan(name: str) -> list[dict[str, Any]]:
    """The stages of a plan."""
    stages: list[dict[str, Any]] = yaml.safe_load(
        (HERE / "plans" / f"{name}.yaml").read_text(encoding="utf-8")
    )
    return stages


def export(args: argparse.Namespace) -> int:
    """Keep a line for every measurement; what only served to choose is left out."""
    chooses = any("tune" in stage for stage in plan(args.name))
    results = [
        result
        for result in Store(args.store, create=False).results()
        if result.status == "done" and not (chooses and result.job.group == "dev")
    ]
    rows = sorted((row(result) for result in results), key=lambda each: json.dumps(each))
    target = HERE / "results" / f"{args.name}.json"
    lines = ",\n".join(json.dumps(each) for each in rows)
    target.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(rows)} results in {target}")
    choices = HERE / "results" / "choices"
    choices.mkdir(exist_ok=True)
    for file in args.store.parent.glob(f"{args.store.stem}.*.json"):
        (choices / file.name).write_bytes(file.read_bytes())
    return 0


def row(result: Result) -> dict[str, Any]:
    """What the tables need of a result."""
    job, record = result.job, result.record
    errors = record["errors"]
    return {
        "model": job.model,
        "weights": None if job.weights is None else Path(job.weights.path).name,
        "dataset": job.dataset,
        "setting": job.setting,
        "recipe": job.recipe,
        "options": dict(job.options),
        "shift": job.shift,
        "corruption": job.corruption,
        "severity": job.severity,
        "seed": job.seed,
        "images": record["images"],
        "unadapted": errors.get("unadapted"),
        "error": errors.get("final"),
        "after_epoch": errors.get("after_epoch"),
        "online": errors.get("online"),
        "ece": record.get("ece"),
        "forgetting": record.get("forgetting"),
        "by_shift": record.get("by_shift"),
        "forwards": record.get("forwards"),
        "backwards": record.get("backwards"),
        "seconds": record["seconds"],
        "speed": record.get("speed"),
        "device": record["device"],
    }


def main() -> int:
    """Run or export."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    names = sorted(path.stem for path in (HERE / "plans").glob("*.yaml"))
    one, two = commands.add_parser("run"), commands.add_parser("export")
    for each in (one, two):
        each.add_argument("name", choices=names, metavar="NAME", help=", ".join(names))
        each.add_argument("--store", type=Path, required=True)
    one.add_argument("--root", type=Path, required=True, help="where the data sets lie")
    one.add_argument("--stages", type=int, nargs="+", help="only these, counted from 1")
    one.add_argument("--workers", type=int, help="processes")
    one.add_argument("--images", type=int, help="fewer of each shift")
    args = parser.parse_args()
    return run(args) if args.command == "run" else export(args)


if __name__ == "__main__":
    sys.exit(main())
