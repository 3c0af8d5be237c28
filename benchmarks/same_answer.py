"""Does a faster run end where the exact one ends? Errors after adaptation, with three seeds.

    python benchmarks/same_answer.py --root DATA --out benchmarks/results/same_answer.json

DATA holds cifar10-test.npz. Each pair of runs differs in ``speed`` alone; rates and epochs were
chosen on the hold-out corruptions. Runs with another seed differ too, by chance: the spread of the
exact ones over seeds stands beside each difference. Rounding alone sends runs apart too (by 0.4
points between two versions of the same kernels), so what counts is the mean over all pairs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

import acclimate
from acclimate.bench.images import few_images
from acclimate.data import ImageSource, open_dataset
from acclimate.models import LoadedModel, load
from acclimate.text import Speed

MODELS = ("acclimate:wrn-26-2-bn-cifar10", "acclimate:wrn-40-2-augmix-cifar10")
SHIFTS = ("cifar/gaussian_blur:5", "cifar/gaussian_noise:5")
RECIPES: dict[str, dict[str, Any]] = {
    "ent": {"optimizer.lr": 0.03, "epochs": 5},
    "rpl": {"optimizer.lr": 0.03, "epochs": 5},
}
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Run:
    """One adaptation."""

    model: str
    shift: str
    recipe: str
    seed: int
    speed: Speed


def main() -> None:
    """Run all pairs, write them down, and print the differences."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="where cifar10-test.npz lies")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--images", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="SPEC")
    parser.add_argument("--speed", default="max", choices=["auto", "max"])
    parser.add_argument("--workers", type=int, default=1, help="processes")
    args = parser.parse_args()
    runs = [
        Run(model, shift, recipe, seed, speed)
        for model in args.models
        for shift in SHIFTS
        for recipe in RECIPES
        for seed in SEEDS
        for speed in ("exact", args.speed)
    ]
    work = partial(adapted, root=args.root, images=args.images)
    if args.workers > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(args.workers, mp_context=context) as pool:
            found = dict(zip(runs, pool.map(work, runs), strict=True))
    else:
        found = {run: work(run) for run in runs}
    rows = compared(found, args.speed)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{device}, torch {torch.__version__}",
        "images": args.images,
        "speed": args.speed,
        "options": RECIPES,
        **overall(rows),
        "largest_difference": max(abs(row["difference"]) for row in rows),
        "rows": rows,
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        print({name: row[name] for name in list(row)[:7]})
    print(f"largest difference of means {result['largest_difference']:.3f} points; {args.out}")
    print(f"of all {result['mean_difference']:+.3f} ± {result['standard_error']:.3f} points")


def compared(found: dict[Run, dict[str, Any]], speed: Speed) -> list[dict[str, Any]]:
    """Means over the seeds, exact and faster, and their difference in points of error."""
    rows = []
    for model, shift, recipe in dict.fromkeys((r.model, r.shift, r.recipe) for r in found):
        by_speed = {
            each: [found[Run(model, shift, recipe, seed, each)] for seed in SEEDS]
            for each in ("exact", speed)
        }
        exact, fast = ([run["error"] for run in by_speed[each]] for each in ("exact", speed))
        rows.append(
            {
                "model": model,
                "shift": shift,
                "recipe": recipe,
                "exact": round(statistics.fmean(exact), 3),
                "fast": round(statistics.fmean(fast), 3),
                "difference": round(statistics.fmean(fast) - statistics.fmean(exact), 3),
                "spread_over_seeds": round(statistics.stdev(exact), 3),
                "errors": {"exact": exact, "fast": fast},
                "how": sorted({run["how"] for run in by_speed[speed]}),
            }
        )
    return rows


def overall(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The mean over all pairs of runs, and how sure it is: rounding sends single runs apart.

    >>> overall([{"errors": {"exact": [10.0, 12.0], "fast": [10.2, 12.0]}}])
    {'mean_difference': 0.1, 'standard_error': 0.1}
    """
    pairs = [zip(row["errors"]["exact"], row["errors"]["fast"], strict=True) for row in rows]
    differences = [fast - exact for each in pairs for exact, fast in each]
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return {
        "mean_difference": round(statistics.fmean(differences), 3),
        "standard_error": round(error, 3),
    }


def adapted(run: Run, *, root: Path, images: int) -> dict[str, Any]:
    """The error after adaptation, and how the model ran."""
    loaded, source = opened(run.model, root, images)
    result = acclimate.adapt(
        loaded,
        source,
        run.recipe,
        options=RECIPES[run.recipe],
        shift=run.shift,
        guard="observe",
        seed=run.seed,
        speed=run.speed,
        progress=False,
    )
    assert result.error_after is not None
    return {"error": round(result.error_after, 3), "how": result.record.acceleration}


@lru_cache(maxsize=1)
def opened(model: str, root: Path, images: int) -> tuple[LoadedModel, ImageSource]:
    """A model and its pictures, kept by the process."""
    loaded = load(model)
    source = open_dataset("cifar10", root, preprocessing=loaded.preprocessing)
    return loaded, few_images(source, images)[0]


if __name__ == "__main__":
    main()
