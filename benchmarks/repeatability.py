"""Do runs that should end alike end alike? With another speed, and with the same seed on a GPU.

    python benchmarks/repeatability.py speed --root DATA --out benchmarks/results/same_answer.json
    python benchmarks/repeatability.py seed --root DATA --out benchmarks/results/same_seed.json

DATA holds cifar10-test.npz.

``speed``: errors after adaptation, with three seeds. Each pair of runs differs in ``speed`` alone;
rates and epochs were chosen on the hold-out corruptions. Runs with another seed differ too, by
chance: the spread of the exact ones over seeds stands beside each difference. Rounding alone sends
runs apart too (by 0.4 points between two versions of the same kernels), so what counts is the mean
over all pairs.

``seed``: cuDNN chooses the kernels of convolutions by trying them (as faster runs do), by a rule,
or by a rule among those that give the same bits every time. Each way of choosing runs in processes
of its own, twice in each: what was tried there once is known.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import acclimate
from acclimate.acceleration import Acceleration
from acclimate.bench.images import few_images
from acclimate.checkpoint import fingerprint
from acclimate.data import ImageSource, open_dataset
from acclimate.models import LoadedModel, load
from acclimate.text import Speed
from step import CASES

MODELS = ("acclimate:wrn-26-2-bn-cifar10", "acclimate:wrn-40-2-augmix-cifar10")
SHIFTS = ("cifar/gaussian_blur:5", "cifar/gaussian_noise:5")
RECIPES: dict[str, dict[str, Any]] = {
    "ent": {"optimizer.lr": 0.03, "epochs": 5},
    "rpl": {"optimizer.lr": 0.03, "epochs": 5},
}
SEEDS = (0, 1, 2)
CHOSEN = {
    "by trying": {"benchmark": True, "deterministic": False},
    "by rule": {"benchmark": False, "deterministic": False},
    "by rule, the same bits": {"benchmark": False, "deterministic": True},
}
PROCESSES, TURNS = 3, 2
LARGE = 40  # batches of the large model


@dataclass(frozen=True)
class Run:
    """One adaptation."""

    model: str
    shift: str
    recipe: str
    seed: int
    speed: Speed


def speed(args: argparse.Namespace) -> None:
    """Run all pairs, write them, and print the differences."""
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
    """The mean over all pairs of runs, and its standard error: rounding sends single runs apart.

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
    """A model and its images, cached by the process."""
    loaded = load(model)
    source = open_dataset("cifar10", root, preprocessing=loaded.preprocessing)
    return loaded, few_images(source, images)[0]


def turns(model: str, chosen: str, root: Path, images: int) -> list[dict[str, Any]]:
    """What came of the turns of a process."""
    plain = Acceleration.kernels

    @contextlib.contextmanager
    def kernels(self: Acceleration, device: torch.device) -> Iterator[None]:
        with plain(self, device), torch.backends.cudnn.flags(
            enabled=True, allow_tf32=True, **CHOSEN[chosen]
        ):  # fmt: skip
            yield

    with patch.object(Acceleration, "kernels", kernels):
        return [_turn(model, root, images) for _ in range(TURNS)]


def _turn(name: str, root: Path, images: int) -> dict[str, Any]:
    case = CASES.get(name)
    model: nn.Module | LoadedModel
    data: Tensor | ImageSource
    if case is None:
        model, data = opened(name, root, images)
        shift: str | None = "cifar/speckle_noise:5"
    else:
        model, shift = case.build(), None
        shape = (min(images, LARGE * case.batch), 3, case.size, case.size)
        data = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    began = time.perf_counter()
    found = acclimate.adapt(
        model,
        data,
        "rpl",
        options={"optimizer.lr": 0.03, "epochs": 2},
        shift=shift,
        guard="observe",
        score="end",
        progress=False,
    )
    seconds = time.perf_counter() - began
    return {
        "error": found.error_after,
        "seconds": round(seconds, 2),
        "digest": fingerprint(found.model.state_dict()),
        "how": found.record.acceleration,
    }


def seed(args: argparse.Namespace) -> None:
    """All ways of choosing, side by side."""
    rows = []
    for model in args.models:
        for chosen in CHOSEN:
            found = []
            for _ in range(PROCESSES):
                context = multiprocessing.get_context("spawn")
                with ProcessPoolExecutor(1, mp_context=context) as pool:
                    found.append(pool.submit(turns, model, chosen, args.root, args.images).result())
            rows.append({"model": model, "kernels": chosen, "processes": found})
            digests = {turn["digest"] for each in found for turn in each}
            last = [each[-1] for each in found]
            fastest = min(turn["seconds"] for turn in last)
            errors = [turn["error"] for turn in last]
            print(model, chosen, f"{len(digests)} results", f"{fastest} s", errors, flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    result = {"device": device, "torch": torch.__version__, "rows": rows}
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Compare speeds, or runs of one seed."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    models = {speed: MODELS, seed: (MODELS[0], "resnet50")}
    for call, usual in models.items():
        command = commands.add_parser(call.__name__)
        command.set_defaults(call=call)
        command.add_argument("--root", type=Path, required=True, help="folder of cifar10-test.npz")
        command.add_argument("--out", type=Path, required=True, help="a JSON file")
        command.add_argument("--images", type=int, default=10_000, help="default: %(default)s")
        command.add_argument("--models", nargs="+", default=usual, metavar="NAME")
        if call is speed:
            command.add_argument("--speed", default="max", choices=["auto", "max"])
            command.add_argument("--workers", type=int, default=1, help="processes")
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
