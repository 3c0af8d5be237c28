"""Every long command × what can go wrong under it: does the same call end with the same files?

    python benchmarks/faults.py run --seeds 8 --lines DIR/faults.jsonl
    python benchmarks/faults.py store --lines DIR/faults.jsonl   # into results/faults.json
    python benchmarks/faults.py table

A case disturbs a command at a moment drawn from its seed, lets the disturbance pass, runs the same
call again and compares all files with those of an undisturbed run. Commands run in forked
processes, which begin to work at once, as ``acclimate`` itself does but without its start-up; those
on Ray are started anew, on a cluster of this machine. Full disks are small ``tmpfs`` mounts, which
takes root and Linux; folders that cannot be written to bind root, too, since the processes give up
its privilege of writing anyway. A run resumes from what is in its lines.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acclimate.data.digits import digits
from acclimate.reading import parse_json, read_json
from acclimate.table import Entry, Number, Table

sys.path.insert(0, str(Path(__file__).parent))  # where tests run it from elsewhere

from disturbing import (
    COMMANDS,
    FAULTS,
    Case,
    End,
    Undisturbed,
    contents,
    differing,
    ended,
    finished,
    running,
    started,
)

RESULTS = Path(__file__).parent / "results" / "faults.json"
ON_RAY = ("bench", "tune")
LOST_NODE = "lost Ray node"


@dataclass(frozen=True)
class Row:
    """A case: what was done when, how that ended, and what the same call made of it.

    ``hit`` is whether it ended otherwise than undisturbed (on Ray: was still running); ``pieces``
    are results that were finished by then, and ``lost`` those of them that are not there, or were
    made anew, after the same call.
    """

    command: str
    fault: str
    seed: int
    hit: bool
    clear: bool
    same: bool
    pieces: int
    lost: int
    ends: list[str]

    @property
    def good(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.clear and self.same and not self.lost


def measured(case: Case, fault: str, seed: int) -> Row:
    """Disturb a command, run it again, and compare."""
    usual = case.usual
    assert usual is not None
    case.draw = random.Random(f"{case.command} {fault} {seed}")
    ends = list(FAULTS[fault](case))
    return row_of(case, fault, seed, ends)


def row_of(case: Case, fault: str, seed: int, ends: list[End]) -> Row:
    """Run the same call again, and compare."""
    usual = case.usual
    assert usual is not None
    before = finished(case.out)
    again = case.run()
    after = finished(case.out)
    there = contents(case.out)
    same = again.status == usual.status and there == usual.contents
    every = [*ends, again]
    words = [f"{end.status}: {end.text.strip()[-300:]}" for end in every]
    if not same:
        words.append(f"differing: {differing(there, usual.contents)}")
    return Row(
        command=case.command,
        fault=fault,
        seed=seed,
        hit=any(end.status != usual.status for end in ends),
        clear=all(end.clear for end in every),
        same=same,
        pieces=len(before),
        lost=sum(after.get(name) != value for name, value in before.items()),
        ends=words,
    )


@contextmanager
def workplace(root: Path) -> Iterator[Path]:
    """An empty folder, on a disk of its own where a fault made one."""
    out = Path(tempfile.mkdtemp(dir=root)) / "out"
    out.mkdir()
    try:
        yield out
    finally:
        if out.is_mount():
            subprocess.run(["umount", "--lazy", str(out)], check=True)
        shutil.rmtree(out.parent)


def undisturbed(command: str, data: Path, root: Path, *, anew: bool) -> Undisturbed:
    """Twice: what differs between the two is not the fault of a fault."""
    found, seconds = [], 0.0
    for _ in range(2):
        with workplace(root) as out:
            case, began = Case(command, data, out, anew=anew), time.monotonic()
            end = case.run()
            seconds = time.monotonic() - began
            found.append(contents(out))
            size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    if end.status not in (0, 4) or found[0] != found[1]:
        raise SystemExit(f"{command}: {end}, differing: {differing(*found)}")
    return Undisturbed(found[0], end.status, seconds, size)


def write_data(folder: Path) -> None:
    """The embedded digits: clean, in fog, and in the files and at the size of MNIST."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, split, shifted in (
        ("clean", "held-out", False), ("foggy", "held-out", True), ("mnist-train", "train", False),
    ):  # fmt: skip
        images, labels = (part[:100] for part in digits(split, shifted=shifted))  # type: ignore[arg-type]
        if name.startswith("mnist"):
            images = np.pad(np.kron(images, np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
            np.savez(folder / "mnist-test.npz", images=images, labels=labels)
        np.savez(folder / f"{name}.npz", images=images, labels=labels)


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """A head without work, and two nodes."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    made.nodes = [made.add_node(num_cpus=1) for _ in range(2)]
    try:
        yield made
    finally:
        made.shutdown()


def lose_node(case: Case, seed: int, cluster: Any) -> Row:
    """Kill one of two nodes: while workers start, or when so many jobs are done."""
    case.draw = random.Random(f"{case.command} {LOST_NODE} {seed}")
    case.out.mkdir(exist_ok=True)
    words = [*case.argv, "--engine", "ray", "--address", cluster.address]
    pid, done = started(words, case.log, anew=True), case.draw.randint(0, 6)
    if done == 0:
        time.sleep(case.draw.uniform(2, 8))
    while running(pid) and len(finished(case.out)) < done:
        time.sleep(0.02)
    still_running = running(pid)
    cluster.remove_node(cluster.nodes.pop(case.draw.randrange(2)), allow_graceful=False)
    end = ended(pid, case.log)
    cluster.nodes.append(cluster.add_node(num_cpus=1))
    return replace(row_of(case, LOST_NODE, seed, [end]), hit=still_running)


def run(args: argparse.Namespace) -> None:
    """Run the cases that are missing."""
    done = {(row.command, row.fault, row.seed) for row in read_lines(args.lines)}
    wanted = [
        (command, fault, seed)
        for seed in range(args.seeds)
        for fault in args.faults
        for command in (ON_RAY if fault == LOST_NODE else args.commands)
        if (command, fault, seed) not in done
    ]
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of programs: as many as a job on Ray has
    root = Path(tempfile.mkdtemp(prefix="faults-"))
    data = root / "data"
    write_data(data)
    known: dict[str, Undisturbed] = {}
    on_ray = [case for case in wanted if case[1] == LOST_NODE]
    try:
        for command, fault, seed in [case for case in wanted if case not in on_ray]:
            work = partial(measured, fault=fault, seed=seed)
            keep(run_one(work, command, data, known), args.lines)
        if on_ray:
            known.clear()
            with ray_cluster() as cluster:
                for command, _, seed in on_ray:
                    work = partial(lose_node, seed=seed, cluster=cluster)
                    # Nothing may be forked from a process that Ray's threads are in.
                    keep(run_one(work, command, data, known, anew=True), args.lines)
    finally:
        shutil.rmtree(root)


def run_one(
    work: Callable[[Case], Row],
    command: str,
    data: Path,
    known: dict[str, Undisturbed],
    *,
    anew: bool = False,
) -> Row:
    """One case."""
    if command not in known:
        known[command] = undisturbed(command, data, data.parent, anew=anew)
    with workplace(data.parent) as out:
        return work(Case(command, data, out, known[command], anew=anew))


def keep(row: Row, lines: Path) -> None:
    """At the end of the lines."""
    with lines.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")
    print(row.command, row.fault, row.seed, "good" if row.good else row, flush=True)


def read_lines(path: Path) -> list[Row]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Row(**parse_json(line, path)) for line in lines]


def store(args: argparse.Namespace) -> None:
    """Put the lines, without the words of good cases, into the results."""
    rows = sorted(read_lines(args.lines), key=lambda row: (_order(row), row.seed))
    plain = [asdict(row) | ({"ends": []} if row.good else {}) for row in rows]
    text = ",\n".join(json.dumps(each) for each in plain)
    args.results.write_text(f"[\n{text}\n]\n", encoding="utf-8")


def _order(row: Row) -> tuple[int, int]:
    return [*FAULTS, LOST_NODE].index(row.fault), list(COMMANDS).index(row.command)


def markdown(rows: Sequence[Row]) -> str:
    """The table of docs/reliability.md: a line for each fault and command, and all of them."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=_order):
        groups.setdefault((row.fault, row.command), []).append(row)
    header = ["fault", "command", "cases", "interrupted", "same bytes after", "finished", "lost",
              "unclear ends"]  # fmt: skip
    lines = [_line(fault, command, own) for (fault, command), own in groups.items()]
    return Table([*lines, _line("all", "", list(rows))], header).markdown()


def _line(fault: str, command: str, rows: Sequence[Row]) -> list[Entry]:
    counts = [
        len(rows),
        sum(row.hit for row in rows),
        sum(row.same for row in rows),
        sum(row.pieces for row in rows),
        sum(row.lost for row in rows),
        sum(not row.clear for row in rows),
    ]
    return [fault, f"`{command}`" if command else "", *(Number(f"{n:,}", n) for n in counts)]


def table(args: argparse.Namespace) -> None:
    """Print the stored results."""
    print(markdown([Row(**row) for row in read_json(args.results)]))


def main() -> None:
    """Run, store or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    faults = [*FAULTS, LOST_NODE]
    made = {call: commands.add_parser(call.__name__) for call in (run, store, table)}
    for call, command in made.items():
        command.set_defaults(call=call)
        if call is not table:
            command.add_argument("--lines", type=Path, required=True, help="a JSON lines file")
        if call is not run:
            command.add_argument("--results", type=Path, default=RESULTS)
    made[run].add_argument("--seeds", type=int, default=8, help="of each pair")
    made[run].add_argument("--commands", nargs="+", choices=list(COMMANDS), default=list(COMMANDS))
    made[run].add_argument("--faults", nargs="+", choices=faults, default=faults)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
