"""`acclimate adapt` on two nodes by torchrun beside one process: do they give the same?

    python benchmarks/nodes.py [--images N] [--model SPEC] [--data FOLDER] [--out FILE]

Both nodes are on this machine: two `torchrun` that meet by address and port, each with one process
and one thread, as on two machines. Seconds are printed, and stored only with `--seconds`: they say
something on an idle machine alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


def write_digits(folder: Path, count: int) -> None:
    """Digits in fog, in folders by class."""
    from PIL import Image

    from acclimate.data.digits import digits

    for index, (pixels, label) in enumerate(zip(*digits("held-out", shifted=True), strict=True)):
        if index < count:
            (folder / str(label)).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(folder / str(label) / f"{index:05}.png")


def adapt(nodes: int, words: Sequence[str], out: Path) -> float:
    """Seconds that the command takes; with several nodes one torchrun each."""
    module = ["-m", "acclimate", "adapt", *words, "--out", str(out), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    launch = ["-m", "torch.distributed.run", "--nnodes", str(nodes), "--nproc-per-node", "1"]
    launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
    command = [sys.executable, *(launch if nodes > 1 else []), *module]
    began = time.perf_counter()
    ran = [
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(nodes)
    ]
    statuses = [each.wait() for each in ran]
    if set(statuses) - {0, 4}:
        raise SystemExit(f"acclimate adapt failed: exit statuses {statuses}")
    return time.perf_counter() - began


def described(out: Path) -> dict[str, Any]:
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return {"error": summary["error"], "guard": summary["guard"]}


def predictions(out: Path) -> list[str]:
    with (out / "predictions.csv").open(encoding="utf-8") as file:
        return [row["class"] for row in csv.DictReader(file)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run both and compare; 1 where a prediction differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--model", default="acclimate:digits")
    parser.add_argument("--data", type=Path, help="default: the embedded digits in fog")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--seconds", action="store_true", help="store how long it took, too")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder, data = Path(name), args.data
        if data is None:
            data = folder / "images"
            data.mkdir()
            write_digits(data, args.images)
        words = ["--model", args.model, "--images", str(data), "--labels", "index"]
        words += ["--recipe", "ent", "--epochs", "2", "--lr", "0.01"]
        seconds = {n: adapt(n, words, folder / f"on-{n}") for n in (1, args.nodes)}
        runs = {n: described(folder / f"on-{n}") for n in seconds}
        one, several = (predictions(folder / f"on-{n}") for n in seconds)
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()}-core CPU, one torch thread a process, nodes on one machine",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "model": args.model,
        "images": len(one),
        "nodes": args.nodes,
        "predictions_that_differ": sum(a != b for a, b in zip(one, several, strict=True)),
        "runs": {str(n): run for n, run in runs.items()},
    }
    if args.seconds:
        result["seconds"] = {str(n): round(each, 1) for n, each in seconds.items()}
    print(json.dumps(result, indent=1))
    print({n: f"{each:.1f} s" for n, each in seconds.items()}, file=sys.stderr)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return int(result["predictions_that_differ"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
