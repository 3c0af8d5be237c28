"""Train the source models, and keep what came out.

    python benchmarks/pretraining.py list
    python benchmarks/pretraining.py run --root DATA --out RUNS --at-once 3 'wrn-*' resnet18-cifar10
    python benchmarks/pretraining.py keep RUNS

``run`` starts ``acclimate pretrain`` for each name in a process of its own; a run that was stopped
is resumed. ``keep`` puts the summaries of finished runs into results/pretraining.json, and the
weights of those that come with the package where it finds them.

DATA holds cifar10-*.npz, mnist-*.npz, usps-*.npz, mnist-m-test.npz (the published images) and
mnist-m-train.npz, made of MNIST and photos with ``acclimate.data.benchmarks.build_mnist_m``.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "pretraining.json"
ROOT = Path(__file__).parents[1]
CHECKPOINTS = ROOT / "checkpoints/acclimate_checkpoints"
RECORDS = ROOT / "src/acclimate/models/checkpoints.json"
HEAD = "head.safetensors"  # what DINO leaves beside the model
JOBS = Path(__file__).parent / "pretraining_jobs.json"

TRAINED_ON = {
    "cifar10": "CIFAR-10",
    "mnist": "MNIST",
    "usps": "USPS",
    "mnist-m": "MNIST-M (made of MNIST and 2,000 photos)",
}
SCORED_ON = {
    "cifar10": "CIFAR-10, test",
    "mnist": "MNIST, test",
    "usps": "USPS, test",
    "mnist-m": "MNIST-M, the published test images",
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training by name: its options, the error in percent it was to reach, if it ships."""

    name: str
    options: str
    aim: float | None = None
    ships: bool = False

    @property
    def command(self) -> str:
        """What a user would type, without the folders of data and results."""
        return f"acclimate pretrain {self.options}"


def jobs(patterns: list[str] | None = None) -> dict[str, Job]:
    """Those whose names match one of some patterns, in the order of the file."""
    every = {
        name: Job(name=name, **record)
        for name, record in json.loads(JOBS.read_text(encoding="utf-8")).items()
    }
    if not patterns:
        return every
    for pattern in patterns:
        if not fnmatch.filter(every, pattern):
            sys.exit(f"no training {pattern!r}; there are: {', '.join(every)}")
    return {n: j for n, j in every.items() if any(fnmatch.fnmatch(n, p) for p in patterns)}


def run(chosen: dict[str, Job], *, root: Path, out: Path, at_once: int) -> int:
    """Train them, some at once; how many failed."""
    waiting, failed = list(chosen.values()), 0
    running: dict[str, subprocess.Popen[bytes]] = {}
    began = time.monotonic()
    while waiting or running:
        while waiting and len(running) < at_once:
            job = waiting.pop(0)
            folder = out / job.name
            folder.mkdir(parents=True, exist_ok=True)
            words = [*shlex.split(job.options), "--root", str(root), "--out", str(folder)]
            with (folder / "log.txt").open("w") as log:
                running[job.name] = subprocess.Popen(
                    [sys.executable, "-m", "acclimate", "pretrain", *words], stdout=log, stderr=log
                )
            print(f"{time.monotonic() - began:6.0f} s  began {job.name}", flush=True)
        time.sleep(0.5)
        for name, process in list(running.items()):
            if process.poll() is None:
                continue
            del running[name]
            failed += process.returncode != 0
            log_text = (out / name / "log.txt").read_text().strip()
            message = log_text.rpartition("\n")[2] if process.returncode else _scores(out / name)
            print(f"{time.monotonic() - began:6.0f} s  ended {name}: {message}", flush=True)
    return failed


def keep(out: Path) -> None:
    """The summaries, and the weights that ship, of all finished runs in a folder."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    records = json.loads(RECORDS.read_text(encoding="utf-8"))
    for name, job in jobs().items():
        folder = out / name
        if not (folder / "summary.json").exists():
            continue
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        summary["losses"] = [round(loss, 4) for loss in summary["losses"]]
        # Not the line as it was typed: it names folders of the machine it was typed on.
        results[name] = {**summary, "command": job.command, "aim": job.aim}
        if job.ships:
            shutil.copyfile(folder / "model.safetensors", CHECKPOINTS / f"{name}.safetensors")
            records[name] = _record(name, job, summary)
            if (folder / HEAD).exists():
                shutil.copyfile(folder / HEAD, CHECKPOINTS / f"{name}.{HEAD}")
                records[name]["head_sha256"] = _sha256(CHECKPOINTS / f"{name}.{HEAD}")
        print(f"stored {name}: {_scores(folder)}")
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    RECORDS.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _record(name: str, job: Job, summary: dict[str, Any]) -> dict[str, Any]:
    source, target = summary["dataset"], summary["target"]
    trained_on = TRAINED_ON[source]
    if target is not None:
        trained_on += f" with labels, {TRAINED_ON[target]} without"
    scored = summary["error"]["source" if target is None else "target"]
    return {
        "architecture": summary["model"].removeprefix("acclimate:"),
        "classes": "cifar10" if source == "cifar10" else "digits",
        "trained_on": trained_on,
        "error": round(scored["value"], 2),
        "error_on": SCORED_ON[target or source],
        "images": scored["images"],
        "command": job.command,
        "sha256": _sha256(CHECKPOINTS / f"{name}.safetensors"),
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _scores(folder: Path) -> str:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    errors = [f"{domain} {e['value']:.2f} %" for domain, e in summary["error"].items()]
    return f"{', '.join(errors)} in {summary['seconds']:.0f} s"


def main() -> int:
    """List, run or keep."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="all trainings")
    one = commands.add_parser("run", help="train some of them")
    one.add_argument("names", nargs="*", help="names or patterns (default: all)")
    one.add_argument("--root", type=Path, required=True, help="folder of the data")
    one.add_argument("--out", type=Path, required=True, help="a folder for all runs")
    one.add_argument("--at-once", type=int, default=1, help="processes (default: %(default)s)")
    two = commands.add_parser("keep", help="keep the results of finished ones")
    two.add_argument("out", type=Path, help="the folder of the runs")
    args = parser.parse_args()
    if args.command == "run":
        failed = run(jobs(args.names), root=args.root, out=args.out, at_once=max(1, args.at_once))
        return int(failed > 0)
    if args.command == "keep":
        keep(args.out)
        return 0
    for job in jobs().values():
        aim = f"aim {job.aim} %" if job.aim is not None else ""
        print(f"{job.name:32}{aim:12}{job.command}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
