"""Run the tests in ``tests/fuzz`` for long, and keep how many cases they tried.

    python benchmarks/fuzz.py run --results benchmarks/results/fuzz.json [--times 20]
    python benchmarks/fuzz.py table --results benchmarks/results/fuzz.json

``--times`` is how many times the cases of ``./check`` are tried, drawn anew.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from acclimate.table import Entry, Number, Table

ROOT = Path(__file__).parent.parent
NAME = re.compile(r"^tests/fuzz/test_(?P<file>\w+)\.py::(?P<test>.+):$")
COUNTS = re.compile(r"(\d+) passing, (\d+) failing")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One test: its file, and how many cases passed and failed."""

    file: str
    test: str
    passed: int
    failed: int


def counted(lines: Iterator[str]) -> Iterator[Row]:
    """The rows in what pytest prints of hypothesis.

    >>> text = ["tests/fuzz/test_images.py::test_a:", "    - 9 passing, 1 failing, and 0 invalid"]
    >>> next(counted(iter(text)))
    Row(file='images', test='test_a', passed=9, failed=1)
    """
    name: re.Match[str] | None = None
    passed = failed = 0
    for line in lines:
        if found := NAME.match(line):
            if name:
                yield Row(file=name["file"], test=name["test"], passed=passed, failed=failed)
            name, passed, failed = found, 0, 0
        elif name and (counts := COUNTS.search(line)):
            passed, failed = passed + int(counts[1]), failed + int(counts[2])
    if name:
        yield Row(file=name["file"], test=name["test"], passed=passed, failed=failed)


def run(args: argparse.Namespace) -> None:
    """Run all tests, and store the counts."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(os.cpu_count()), "--timeout=0"]
    command += ["--hypothesis-show-statistics", "tests/fuzz"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "ACCLIMATE_FUZZ": str(args.times)},
        text=True,
        capture_output=True,
        check=False,
    )
    rows = list(counted(iter(done.stdout.splitlines())))
    if not rows or (done.returncode and not any(row.failed for row in rows)):
        sys.exit(done.stdout[-4000:] + done.stderr[-2000:])
    found = {"times": args.times, "tests": [asdict(row) for row in rows]}
    args.results.write_text(json.dumps(found, indent=1) + "\n")
    print(markdown(rows))


def markdown(rows: list[Row]) -> str:
    """The table of docs/reliability.md."""
    files: dict[str, list[Row]] = {}
    for row in rows:
        files.setdefault(row.file.replace("_", " "), []).append(row)
    lines: list[list[Entry]] = [
        [
            name,
            Number(str(len(own)), len(own)),
            *(Number(f"{n:,}", n) for n in (sum(r.passed + r.failed for r in own), failures(own))),
        ]
        for name, own in [*sorted(files.items()), ("all", rows)]
    ]
    return Table(
        lines, header=["what is damaged or drawn", "tests", "cases", "failures"]
    ).markdown()


def failures(rows: list[Row]) -> int:
    return sum(row.failed for row in rows)


def read(path: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(path.read_text())["tests"]]


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one, two = commands.add_parser("run"), commands.add_parser("table")
    for each in (one, two):
        each.add_argument("--results", type=Path, required=True)
    one.add_argument("--times", type=int, default=20)
    one.set_defaults(call=run)
    two.set_defaults(call=lambda args: print(markdown(read(args.results))))
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
