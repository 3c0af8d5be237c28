"""What the harness costs over the bare adaptation loop, for the same jobs in the same process.

python benchmarks/harness.py > benchmarks/results/harness.json

Both sides adapt the same model to the same images, which are open before the clock starts. The bare
side calls ``adapt()``; the other runs the plan through worker, engine and store. They take turns,
since other work on the machine comes and goes, and differ by less than that work does: so the
seconds that a job spends outside of ``adapt()`` are measured within it too.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from acclimate import adapt
from acclimate.bench import Job, Plan, Store
from acclimate.bench import worker as running
from acclimate.bench.engines import InlineEngine, WorkerSettings
from acclimate.bench.sweep import run_jobs
from acclimate.bench.worker import Worker
from acclimate.data.digits import digits
from acclimate.errors import AcclimateWarning

REPEATS = 5
EPOCHS = 10
SHIFT = "cifar/fog:2"


def main() -> None:
    warnings.simplefilter("ignore", AcclimateWarning)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        images, labels = digits("held-out")
        large = np.pad(np.kron(images, np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
        np.savez(root / "mnist-test.npz", images=large, labels=labels)
        print(json.dumps(measured(root), indent=1))


def measured(root: Path) -> dict[str, Any]:
    settings = WorkerSettings(roots={"mnist": str(root)}, device="cpu", incomplete=True)
    engine, store = InlineEngine(settings), Store(root / "sweep.db")
    plan = Plan(
        models=["acclimate:digits"],
        datasets=["mnist"],
        shifts=[SHIFT],
        recipes=["ent"],
        options={"epochs": EPOCHS, "optimizer.lr": 1e-3},
        seeds=range(REPEATS + 1),
    )
    jobs = plan.jobs()
    loaded, opened = inside(settings.worker(), jobs[0])

    def bare(job: Job) -> None:
        adapt(
            loaded,
            opened,
            job.recipe,
            options=dict(job.options),
            guard="observe",
            device="cpu",
            seed=job.seed,
            speed="exact",  # as a worker does on a CPU
            progress=False,
        )

    whole: list[float] = []
    within: list[float] = []

    def timed(*args: Any, **values: Any) -> Any:
        started = time.perf_counter()
        result = adapt(*args, **values)
        within.append(time.perf_counter() - started)
        return result

    def harnessed(job: Job) -> None:
        started = time.perf_counter()
        assert run_jobs([job], store, engine, progress=False).done == 1
        whole.append(time.perf_counter() - started)

    vars(running)["adapt"] = timed

    bare(jobs[0])
    harnessed(jobs[0])  # loads model and images, as the first job of a group does
    whole.clear()
    within.clear()
    took: dict[str, list[float]] = {"bare": [], "harness": []}
    for number, job in enumerate(jobs[1:]):
        sides = [("bare", bare), ("harness", harnessed)]
        for name, call in sides if number % 2 else sides[::-1]:
            started = time.process_time()
            call(job)
            took[name].append(time.process_time() - started)
            print(name, round(took[name][-1], 3), file=sys.stderr)
    seconds = {name: median(values) for name, values in took.items()}
    outside = median(a - b for a, b in zip(whole, within, strict=True))
    return {
        "processor seconds of a job": {name: round(value, 3) for name, value in seconds.items()},
        "harness / bare": round(seconds["harness"] / seconds["bare"], 3),
        "spread of bare, largest / smallest": round(max(took["bare"]) / min(took["bare"]), 3),
        "wall seconds of a job outside of adapt()": round(outside, 4),
        "of a job of a minute": round(outside / 60, 5),
        "repeats": REPEATS,
        "job": f"{len(opened):,} digits, ent, {EPOCHS} epochs, CPU, one thread",
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, 2 cores, with other work beside it",
    }


def inside(worker: Worker, job: Job) -> tuple[Any, Any]:
    """The model and the images that a worker would take."""
    loaded = worker.models.load(job)
    return loaded, worker.images.shifted(job, loaded).images


if __name__ == "__main__":
    main()
