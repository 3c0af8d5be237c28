"""How long a plan of 10,000 jobs takes to expand, and a store of 100,000 results to query.

python benchmarks/store.py > benchmarks/results/store.json
"""

from __future__ import annotations

import json
import platform
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from acclimate.bench import Job, Plan, Record, Result, Store, conditions, corruption_table, pivot
from acclimate.bench.table import needed

RESULTS = 100_000
REPEATS = 5
MODELS = [f"py:nets:net{number}" for number in range(10)]  # any name will do: none is loaded
RECIPES = ["none", "bn", "ent", "rpl"]


def main() -> None:
    plan = Plan(
        models=["acclimate:wrn-40-2-augmix-cifar10"],
        datasets=["cifar10"],
        shifts=["cifar/test"],
        recipes=["ent", "rpl"],
        options={"optimizer.lr": [10**-n for n in range(2, 9)]},
        seeds=range(10),
    )
    count = len(plan.jobs())
    rows: dict[str, Any] = {f"expand a plan of {count:,} jobs": seconds(plan.jobs)}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "results.db")
        started = time.perf_counter()
        store.add_all(results())
        rows[f"add {RESULTS:,} results at once"] = time.perf_counter() - started
        rows["add one result"] = seconds(lambda: store.add(one(random.getrandbits(40))))
        rows[f"acclimate results, the whole command, of {RESULTS:,}"] = seconds(command(store.path))
        rows |= {f"{name}, of {RESULTS:,}": seconds(each) for name, each in queries(store).items()}
        size = store.path.stat().st_size
    print(
        json.dumps(
            {
                "seconds": {name: round(value, 4) for name, value in rows.items()},
                "bytes a result": round(size / RESULTS),
                "median of": REPEATS,
                "sqlite": sqlite3.sqlite_version,
                "python": platform.python_version(),
                "machine": f"{platform.machine()}, CPU only",
            },
            indent=1,
        )
    )


def command(store: Path) -> Callable[[], object]:
    """The command line from the start of its interpreter to its end."""
    words = [sys.executable, "-m", "acclimate", "results", str(store)]
    return lambda: subprocess.run(words, check=True, capture_output=True)


def queries(store: Store) -> dict[str, Callable[[], Any]]:
    def shown(*where: str, columns: tuple[str, ...] = ()) -> Any:
        frame = store.select(needed("error", columns), conditions(where))
        return pivot(frame, columns=columns)

    keys = [result.key for result in (one(seed) for seed in range(1000))]
    return {
        "pivot by model and recipe": shown,
        "pivot by model, recipe and severity": lambda: shown(columns=("severity",)),
        "table by corruption": lambda: corruption_table(store.select(needed("error"))),
        "pivot of one model": lambda: shown(f"model={MODELS[0]}"),
        "which of 1,000 jobs are done": lambda: store.has(keys),
        "all keys that are done": store.done_keys,
    }


def results() -> Iterator[Result]:
    """The numbers are drawn: what they are does not matter to the clock."""
    few = Plan(models=["acclimate:digits"], datasets=["cifar10"], shifts=["cifar/test"])
    shifts = [job.shift for job in few.jobs()]
    each = RESULTS // (len(MODELS) * len(RECIPES) * len(shifts))
    left = RESULTS
    for model in MODELS:
        for shift in shifts:
            for recipe in RECIPES:
                for seed in range(each + 1):
                    if left:
                        yield one(seed, model=model, shift=shift, recipe=recipe)
                        left -= 1


def one(seed: int, **changes: Any) -> Result:
    values = {"model": "m", "dataset": "cifar10", "recipe": "ent", "shift": "cifar/fog:1"}
    error = random.uniform(5, 60)
    record = {
        "errors": {"unadapted": 60.0, "online": error + 1, "after_epoch": [error], "final": error},
        "labelled": 10_000,
        "wrong": round(100 * error),
        "ece": 0.05,
        "seconds": 4.0,
        "memory": 10**9,
        "device": "cuda",
        "data": "0123456789abcdef",
    }
    return Result(job=Job(**{**values, **changes}, seed=seed), record=Record.from_dict(record))


def seconds(call: Callable[[], object]) -> float:
    took = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        took.append(time.perf_counter() - started)
    return median(took)


if __name__ == "__main__":
    main()
