"""Does a faster run end where the exact one ends? Errors after adaptation, with three seeds.

    python benchmarks/same_answer.py --root DATA --out benchmarks/results/same_answer.json

DATA holds cifar10-test.npz. Each pair of runs differs in ``speed`` alone.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import acclimate
from acclimate.data import open_dataset
from acclimate.experiments._first_images import first_images
from acclimate.models import load
from acclimate.words import Speed

MODELS = ("acclimate:wrn-26-2-bn-cifar10", "acclimate:wrn-40-2-augmix-cifar10")
SHIFTS = ("cifar/gaussian_blur:5", "cifar/gaussian_noise:5")
RECIPES = {"ent": {"epochs": 1}, "rpl": {"epochs": 2}}
SEEDS = (0, 1, 2)


def main() -> None:
    """Run all pairs, write them down, and print the largest differences."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="where cifar10-test.npz lies")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--images", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="SPEC")
    parser.add_argument("--speed", default="auto", choices=["auto", "max"])
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for spec in args.models:
        loaded = load(spec)
        source = open_dataset("cifar10", args.root, preprocessing=loaded.preprocessing)
        images, _ = first_images(source, args.images)
        for shift in SHIFTS:
            for recipe, options in RECIPES.items():
                for seed in SEEDS:
                    rows.append(pair(loaded, images, shift, recipe, options, seed, args.speed))
                    print({k: v for k, v in rows[-1].items() if k != "model"}, flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{device}, torch {torch.__version__}",
        "images": args.images,
        "speed": args.speed,
        "largest_difference": max(abs(row["difference"]) for row in rows),
        "rows": rows,
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"largest difference {result['largest_difference']:.3f} points; {args.out}")


def pair(
    loaded: Any, images: Any, shift: str, recipe: str, options: Any, seed: int, speed: Speed
) -> dict[str, Any]:
    """The errors of an exact run and of a faster one."""
    errors: dict[str, float] = {}
    seconds: dict[str, float] = {}
    how = ""
    both: tuple[Speed, Speed] = ("exact", speed)
    for each in both:
        began = time.perf_counter()
        result = acclimate.adapt(
            loaded,
            images,
            recipe,
            options=options,
            shift=shift,
            guard="observe",
            seed=seed,
            speed=each,
            progress=False,
        )
        assert result.error_after is not None
        errors[each], how = result.error_after, result.record["acceleration"]
        seconds[each] = time.perf_counter() - began
    return {
        "model": loaded.name,
        "shift": shift,
        "recipe": recipe,
        "seed": seed,
        "how": how,
        "exact": round(errors["exact"], 3),
        "fast": round(errors[speed], 3),
        "difference": round(errors[speed] - errors["exact"], 3),
        "time_ratio": round(seconds["exact"] / seconds[speed], 3),
    }


if __name__ == "__main__":
    main()
