"""A store with results as runs write them: numbers are made up, their shape is not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from acclimate.bench import Job, Result, Store
from acclimate.data.corruptions import DEV, TEST

VERSIONS = {"acclimate": "1.0", "torch": "2.4.0", "numpy": "1.26", "python": "3.11.9"}
GAIN = {"none": 0.0, "bn": 0.25, "ent": 0.45, "rpl": 0.5}


def record(job: Job, *, epochs: int = 3, lr: float = 1e-3) -> dict[str, Any]:
    """Too high a learning rate helps at first, then answers collapse to one class."""
    place = ([*TEST, *DEV, None]).index(job.corruption)
    source = min(90.0, 12.0 + 4.0 * (job.severity or 0) + (7 * place) % 23)
    if "augmix" in job.model:
        source *= 0.6
    start = source * (1 - GAIN["bn"])
    wobble = 0.3 * math.sin(job.seed + place)
    errors: dict[str, Any] = {"unadapted": source, "final": source}
    more: dict[str, Any] = {"recipe": None}
    final = source
    if job.recipe == "bn":
        final = start
        errors |= {"start": start, "online": start + 1, "after_epoch": [], "before_update": []}
    if job.recipe in ("ent", "rpl"):
        best = source * (1 - GAIN[job.recipe])
        fast = lr * 1e3
        after = [best + (start - best) * math.exp(-fast * e) + wobble for e in range(1, epochs + 1)]
        if dict(job.options).get("selector") == "all":
            after = [e + 0.7 for e in after]
        if lr >= 1e-2:
            after = [min(90.0, e + 18 * n**1.6) for n, e in enumerate(after)]
        errors |= {
            "start": start,
            "online": start - 0.5,
            "before_update": [start - 0.5, *(e + 0.8 for e in after[:-1])],
            "after_epoch": after,
        }
        final = after[-1]
        largest = [min(1.0, 0.11 + max(0.0, e - source) / 90) for e in after]
        more = {
            "recipe": {
                "name": job.recipe,
                "objective": {"kind": "cross-entropy", "tau_s": 1.0},
                "selector": {"kind": dict(job.options).get("selector", "norm-affine")},
                "optimizer": {"kind": "sgd", "lr": lr, "momentum": 0.9},
                "epochs": epochs,
            },
            "verdict": "keep" if final < source else "restore",
            "balance": [
                {"classes": 11 - 10 * s, "largest": s, "unused": int(9 * s)} for s in largest
            ],
        }
    errors["final"] = final
    labelled = job.images or 1000
    return {
        "errors": errors,
        "images": labelled,
        "labelled": labelled,
        "wrong": round(final * labelled / 100),
        "ece": 0.2 * GAIN[job.recipe] + 0.05,
        "reliability": _reliability(final, labelled),
        "data": f"{place:02d}{job.severity or 0}" + "ab" * 8,
        "preprocessing": "32 px, normalised",
        "batch_size": 128,
        "seconds": 2.5 + 0.1 * job.seed,
        "memory": 900_000_000,
        "device": "cpu",
        "versions": VERSIONS,
        "notes": [],
        **more,
    }


def _reliability(error: float, images: int) -> list[dict[str, Any]]:
    bins = []
    for i in range(15):
        low, high = i / 15, (i + 1) / 15
        count = images // 30 * (1 + (i > 10)) if i > 2 else 0
        sure = (low + high) / 2
        bins.append(
            {
                "low": low,
                "high": high,
                "count": count,
                "confidence": sure if count else None,
                "accuracy": sure * (1 - error / 150) if count else None,
            }
        )
    return bins


def result(**words: Any) -> Result:
    """A done result of a job in the words of `Job.of`."""
    job = Job.of(**words)
    options = dict(job.options)
    epochs, lr = int(options.get("epochs", 3)), float(options.get("optimizer.lr", 1e-3))
    return Result(job=job, record=record(job, epochs=epochs, lr=lr))


def sweep(
    *,
    models: Sequence[str] = ("acclimate:wrn-40-2", "acclimate:wrn-40-2-augmix-cifar10"),
    corruptions: Iterable[str] = TEST,
    severities: Iterable[int] = (3, 5),
    recipes: Iterable[str] = ("none", "bn", "ent", "rpl"),
    seeds: Iterable[int] = (0, 1, 2),
    grid: Iterable[dict[str, Any]] = ({},),
) -> list[Result]:
    """Models × corruptions × recipes, with options and seeds for those that learn."""
    found = []
    places = itertools.product(models, corruptions, severities, recipes)
    for model, corruption, severity, recipe in places:
        learns = recipe in ("ent", "rpl")
        for options, seed in itertools.product(grid if learns else [{}], seeds if learns else [0]):
            shift = f"cifar/{corruption}:{severity}"
            what = {"model": model, "dataset": "cifar10", "recipe": recipe, "shift": shift}
            found.append(result(**what, options=options, seed=seed, images=1000))
    return found


RATES = [
    {"optimizer.lr": lr, "epochs": 6, "selector": s}
    for lr in (1e-4, 3e-4, 1e-3, 1e-2)
    for s in ("norm-affine", "all")
]
CHOSEN = {"optimizer.lr": 1e-3, "epochs": 6, "selector": "norm-affine"}


def full_store(path: Path) -> Store:
    """A search on hold-out corruptions, the chosen setting on test, and two failed jobs."""
    store = Store(path)
    store.add_all(sweep(corruptions=DEV, severities=(5,), seeds=(0,), grid=RATES))
    store.add_all(sweep(grid=[CHOSEN]))
    for seed in (7, 8):
        job = Job(model="acclimate:wrn-40-2", dataset="cifar10", recipe="rpl", seed=seed)
        store.add(Result.failed(job, "out of memory with batches of 16\nmore lines"))
    return store


def section(report, name):
    return next(each for each in report.sections if each.name == name)


def rows(table):
    names = [[e if isinstance(e, str) else e.text for e in row] for row in table.rows]
    return [dict(zip(table.header, row, strict=True)) for row in names]


def headline(report: Any) -> list[dict[str, str]]:
    """The rows of the first table."""
    return rows(section(report, "results").tables[0])
