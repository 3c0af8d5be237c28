"""CIFAR-10-C as in the paper: options chosen on the hold-out corruptions, measured on the others.

    python benchmarks/cifar10c.py run --root DATA --store cifar10c.db [--models SPEC ...] [--seeds 0]
    python benchmarks/cifar10c.py export --store cifar10c.db
    python benchmarks/headline.py --write README.md

DATA holds cifar10-test.npz. For each model ``run`` lets ``acclimate tune`` choose learning rate and
epochs of each recipe on the hold-out corruptions, and then measures that choice with ``acclimate
bench`` on all 15 test corruptions at 5 severities; what is in the store already is not run again.
``export`` keeps one line per run in results/cifar10c.json, and the choices beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from acclimate.cli import main as acclimate
from acclimate.experiments import Store

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "cifar10c.json"
CHOICES = HERE / "results" / "choices"
MODELS = ("acclimate:wrn-26-2-bn-cifar10", "acclimate:wrn-40-2-augmix-cifar10")
FIXED = ("none", "bn")
LEARNING = ("ent", "rpl", "hard", "soft")
RATES = "0.003,0.01,0.03,0.1"
EPOCHS = 5
DEV = ("cifar/dev:1", "cifar/dev:3", "cifar/dev:5")


def choice_of(store: Path, model: str, options: str) -> Path:
    """Where the choice for a model is written."""
    words = [model.split(":")[1].removesuffix("-cifar10"), *options.split(",")]
    return store.with_name("-".join(words).replace("=", "-").rstrip("-") + ".choice.json")


def run(args: argparse.Namespace) -> int:
    """Choose, then measure, one model after the other."""
    common = ["--root", str(args.root), "--store", str(args.store), "--quiet"]
    if args.workers:
        common += ["--engine", "processes", "--workers", str(args.workers)]
    if args.images:
        common += ["--images-per-shift", str(args.images)]
    extra = [word for each in args.set for word in ("--set", each)]
    status = 0
    for model in args.models:
        choice = choice_of(args.store, model, ",".join(args.set))
        common_of_model = ["--models", model, "--datasets", "cifar10", *common]
        words = ["tune", *common_of_model, "--shifts", *DEV, "--recipes", *args.recipes]
        words += ["--set", f"optimizer.lr={RATES}", *extra]
        words += ["--epochs", str(EPOCHS), "--out", str(choice)]
        status = max(status, acclimate(words))
        fixed = [] if args.set else [*FIXED]
        words = ["bench", *common_of_model, "--shifts", "cifar/test", "--recipes"]
        words += [*fixed, *args.recipes, "--choice", str(choice)]
        words += ["--seeds", *map(str, args.seeds)]
        status = max(status, acclimate(words))
    return status


def export(args: argparse.Namespace) -> int:
    """Keep what the tables need."""
    rows: list[dict[str, Any]] = []
    for result in Store(args.store, create=False).results():
        job, record = result.job, result.record
        if result.status != "done" or job.group != "test":
            continue
        rows.append(
            {
                "model": job.model,
                "recipe": job.recipe,
                "options": dict(job.options),
                "corruption": job.corruption,
                "severity": job.severity,
                "seed": job.seed,
                "images": record["images"],
                "unadapted": record["errors"]["unadapted"],
                "error": record["errors"]["final"],
                "after_epoch": record["errors"]["after_epoch"],
                "ece": record["ece"],
                "seconds": record["seconds"],
                "speed": record["speed"],
                "device": record["device"],
            }
        )
    rows.sort(key=lambda row: [str(row[key]) for key in list(row)[:6]])
    lines = ",\n".join(json.dumps(row) for row in rows)
    RESULTS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(rows)} results in {RESULTS}")
    CHOICES.mkdir(exist_ok=True)
    for file in args.store.parent.glob("*.choice.json"):
        (CHOICES / file.name).write_bytes(file.read_bytes())
    return 0


def main() -> int:
    """Run or export."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("--root", type=Path, required=True, help="where cifar10-test.npz lies")
    one.add_argument("--models", nargs="+", default=MODELS, metavar="SPEC")
    one.add_argument("--recipes", nargs="+", default=LEARNING, metavar="NAME")
    one.add_argument("--seeds", nargs="+", type=int, default=[0])
    one.add_argument("--set", nargs="+", default=[], metavar="OPTION=VALUE")
    one.add_argument("--workers", type=int, help="processes")
    one.add_argument("--images", type=int, help="fewer of each shift")
    two = commands.add_parser("export")
    for each in (one, two):
        each.add_argument("--store", type=Path, required=True)
    args = parser.parse_args()
    return run(args) if args.command == "run" else export(args)


if __name__ == "__main__":
    sys.exit(main())
