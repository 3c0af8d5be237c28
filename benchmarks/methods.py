"""Every method in every setting, with learning rates chosen on hold-out corruptions.

    python benchmarks/methods.py run --root DATA --store methods.db [--workers 6] [--images 500]
    python benchmarks/methods.py export --store methods.db
    python benchmarks/methods.py table

``run`` first lets ``acclimate tune`` choose each learning rate on the hold-out corruptions, and
then runs the plans in benchmarks/plans with ``acclimate bench``; what is in the store already is
not run again. ``export`` keeps the errors in results/methods.json, and ``table`` prints what
docs/methods.md shows.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from acclimate.cli import main as acclimate
from acclimate.experiments import Store

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "methods.json"
PLANS = (HERE / "plans" / "methods.yaml", HERE / "plans" / "methods_single.yaml")
RATES = "1e-4,1e-3,1e-2,1e-1"
FIXED = {"none", "bn", "bn-prior", "lame", "t3a"}  # nothing learns by gradient
COLUMNS = ("online", "correlated:0.1", "continual", "mixed", "single")


def run(args: argparse.Namespace) -> int:
    """Choose, then measure."""
    common = ["--root", str(args.root), "--store", str(args.store), "--quiet"]
    if args.workers:
        common += ["--engine", "processes", "--workers", str(args.workers)]
    status = 0
    for path in PLANS:
        plan = yaml.safe_load(path.read_text(encoding="utf-8"))
        images = min(args.images or plan["images"], plan["images"])
        choice = args.store.with_suffix(f".{path.stem}.json")
        learning = [name for name in plan["recipe"] if name not in FIXED]
        words = ["tune", "--models", plan["model"], "--datasets", "cifar10", *common]
        words += ["--shifts", "cifar/dev:5", "--recipes", *learning]
        words += ["--set", f"optimizer.lr={RATES}", "--epochs", "1"]
        words += ["--images-per-shift", str(min(images, 2000)), "--out", str(choice)]
        status = max(status, acclimate(words))
        words = ["bench", "--plan", str(path), "--choice", str(choice), *common]
        status = max(status, acclimate([*words, "--images-per-shift", str(images)]))
    return status


def export(args: argparse.Namespace) -> int:
    """Keep what the table needs."""
    rows: list[dict[str, Any]] = []
    for result in Store(args.store, create=False).results():
        if result.status != "done" or result.job.setting is None:
            continue
        record = result.record
        rows.append(
            {
                "recipe": result.job.recipe,
                "setting": result.job.setting,
                "shift": result.job.shift,
                "seed": result.job.seed,
                "images": record["images"],
                "options": dict(result.job.options),
                "error": round(record["errors"]["online"], 3),
                "by_shift": record["by_shift"],
                "forwards": record["forwards"],
                "backwards": record["backwards"],
                "seconds": record["seconds"],
                "device": record["device"],
            }
        )
    rows.sort(key=lambda row: (row["setting"], row["recipe"], row["shift"], row["seed"]))
    RESULTS.write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")
    print(f"{len(rows)} results in {RESULTS}")
    return 0


def table() -> str:
    """Mean error of each method in each setting, in percent."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    errors: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        errors.setdefault((row["recipe"], row["setting"]), []).append(row["error"])
    names = list(dict.fromkeys(name for name, _ in sorted(errors)))
    head = "| recipe | " + " | ".join(COLUMNS) + " |\n|---|" + "---|" * len(COLUMNS)
    lines = []
    for name in names:
        cells = [errors.get((name, column)) for column in COLUMNS]
        shown = ["" if each is None else f"{sum(each) / len(each):.1f}" for each in cells]
        lines.append(f"| `{name}` | " + " | ".join(shown) + " |")
    return "\n".join([head, *lines])


def main() -> int:
    """Run, export or print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("--root", type=Path, required=True, help="where cifar10-test.npz lies")
    one.add_argument("--workers", type=int, help="processes")
    one.add_argument("--images", type=int, help="fewer of each shift")
    two = commands.add_parser("export")
    for each in (one, two):
        each.add_argument("--store", type=Path, required=True)
    commands.add_parser("table")
    args = parser.parse_args()
    if args.command == "table":
        print(table())
        return 0
    return run(args) if args.command == "run" else export(args)


if __name__ == "__main__":
    sys.exit(main())
