"""How long one waits before anything happens: imports and the command line's help.

    python benchmarks/startup.py [--json] [--out FILE] [--rounds N]

Everything is measured in fresh interpreters that take turns; the table has medians. "import
acclimate" comes after torch has been imported and is the time beyond it; since names are imported
when first used, "all public names" is what a program that uses them waits for. The help is timed
from outside, start of the interpreter included, which "interpreter alone" is there to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

TIMED = """
import time
{before}
began = time.perf_counter()
{statement}
print(time.perf_counter() - began)
"""
TORCH_FREE = """
import contextlib, io, sys
from acclimate.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
print("torch" not in sys.modules)
"""


def run(*arguments: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def inside(statement: str, before: str = "") -> float:
    """Seconds that a statement takes in a fresh interpreter, after another one."""
    return float(run("-c", TIMED.format(statement=statement, before=before)))


def outside(*arguments: str) -> float:
    """Seconds from the start of an interpreter to its end."""
    began = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - began


MEASURED: dict[str, tuple[Callable[[], float], float | None]] = {
    "import torch": (partial(inside, "import torch"), None),
    "import acclimate, beyond torch": (partial(inside, "import acclimate", "import torch"), 1.5),
    "all public names, beyond torch": (
        partial(inside, "from acclimate import *", "import torch"),
        1.5,
    ),
    "interpreter alone": (partial(outside, "-c", "pass"), None),
    "acclimate --help": (partial(outside, "-m", "acclimate", "--help"), 0.5),
}
"""What is measured, and the seconds it should stay below."""


def measure(rounds: int) -> list[dict[str, Any]]:
    """Medians, after a first round that fills the caches of the file system."""
    seconds: dict[str, list[float]] = {name: [] for name in MEASURED}
    for number in range(rounds + 1):
        for name, (take, _) in MEASURED.items():
            taken = take()
            if number:
                seconds[name].append(taken)
    return [
        {
            "what": name,
            "seconds": round(statistics.median(seconds[name]), 3),
            "longest": round(max(seconds[name]), 3),
            "limit": limit,
        }
        for name, (_, limit) in MEASURED.items()
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print one table or one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="a JSON file")
    args = parser.parse_args(argv)
    rows = measure(args.rounds)
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()}-core CPU",
        "python": platform.python_version(),
        "torch": version("torch"),
        "rounds": args.rounds,
        "help_without_torch": run("-c", TORCH_FREE).strip() == "True",
        "rows": rows,
    }
    text = json.dumps(result, indent=1)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    if args.json:
        print(text)
        return 0
    print(f"{result['machine']}, Python {result['python']}, torch {result['torch']}")
    print(f"{'what':32}{'seconds':>9}{'longest':>9}{'limit':>7}")
    for row in rows:
        limit = "–" if row["limit"] is None else f"{row['limit']:.1f}"
        print(f"{row['what']:32}{row['seconds']:9.3f}{row['longest']:9.3f}{limit:>7}")
    print(f"the help {'leaves torch alone' if result['help_without_torch'] else 'imports torch'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
