"""What ``adapt(model, images)`` returns without options: on real photos, for every shift.

    python benchmarks/defaults.py run --data DIR --results FILE [--models resnet50] \\
        [--shifts imagenet/test:5] [--images 5000] [--seconds 500]
    python benchmarks/defaults.py table --results FILE

DIR is that of ``bank.py``. Runs that are in FILE are not run again: stop and resume at any time.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

import acclimate
from acclimate.bench.shifts import made_shifts
from acclimate.data.shift import Shift
from acclimate.table import Entry, Number, Table, number_entry
from bank import MODELS, Bank, read


def subset(images: np.ndarray, labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """So many of the images, the same ones every time, in the order of a folder."""
    drawn = np.random.default_rng(0).permutation(len(images))[:count]
    drawn.sort()
    return images[drawn], labels[drawn]


def run_one(bank: Bank, model: str, shift: str, count: int, seed: int) -> dict[str, Any]:
    """One call, and what became of the error."""
    stem = {"photos": "photos", "cifar10": "cifar10-test", "mnist": "mnist-test"}[MODELS[model][0]]
    pixels, labels = bank.images(stem, model)
    images, truth = subset(pixels.permute(0, 2, 3, 1).numpy(), labels.numpy(), count)
    began = time.perf_counter()
    result = acclimate.adapt(
        bank.model(model),
        images,
        labels=truth.tolist(),
        shift=None if shift == "clean" else shift,
        device=bank.device,
        seed=seed,
        progress=False,
    )
    seconds = time.perf_counter() - began
    before, after = result.predictions_before, result.predictions
    assert before is not None
    estimate = result.estimated_error
    return {
        "model": model,
        "shift": shift,
        "images": len(truth),
        "seed": seed,
        "unadapted": 100 * float((before.numpy() != truth).mean()),
        "returned": 100 * float((after.numpy() != truth).mean()),
        "verdict": result.verdict.word,
        "reason": result.verdict.reason,
        "estimate": None
        if estimate is None
        else {
            name: [each.value, each.low, each.high]
            for name, each in (
                ("before", estimate.before), ("after", estimate.after), ("change", estimate.change)
            )
        },
        "plan": list(result.record.plan) if result.record else [],
        "epochs": len(result.history.epochs),
        "kept_epoch": result.history.kept_epoch,
        "events": [str(event) for event in result.history.events],
        "acceleration": result.record.acceleration if result.record else None,
        "seconds": seconds,
        "device": str(bank.device),
    }  # fmt: skip


def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a run is known by."""
    return row["model"], row["shift"], row["images"], row["seed"]


def run(args: argparse.Namespace) -> None:
    """Run what is missing, for so many seconds."""
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    bank, began = Bank(args.data, device), time.monotonic()
    known = {key(row) for row in read(args.results)}
    for shift in shifts_of(args.shifts):
        for model in args.models:
            for images in args.images:
                if (model, shift, images, args.seed) in known:
                    continue
                if time.monotonic() - began > args.seconds:
                    print("some are left: run again to continue")
                    return
                row = run_one(bank, model, shift, images, args.seed)
                with args.results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(
                    f"{model} {shift} {images}: {row['unadapted']:.1f} -> {row['returned']:.1f} "
                    f"{row['verdict']}, {row['reason']} [{row['seconds']:.1f} s]",
                    flush=True,
                )


def shifts_of(names: Sequence[str]) -> Iterator[str]:
    """Names as the command line takes them; "clean" is none."""
    for name in names:
        yield from ["clean"] if name == "clean" else map(str, made_shifts([name]))


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each corruption at severity 5, and the mean over all shifts."""
    shown: list[list[Entry]] = []
    groups = sorted({(row["model"], row["images"]) for row in rows})
    for model, images in groups:
        own = [r for r in rows if (r["model"], r["images"]) == (model, images)]
        severe = [r for r in own if r["shift"].endswith(":5") or r["shift"] == "clean"]
        for row in severe:
            name = "clean" if row["shift"] == "clean" else Shift.parse(row["shift"]).name
            shown.append(
                [model, Number(f"{images:,}", images), name, *figures([row]), row["verdict"]]
            )
        shown.append(
            [model, Number(f"{images:,}", images), f"mean of {len(own)}", *figures(own), ""]
        )
    header = ["model", "images", "shift", "unadapted", "returned", "estimated", "verdict"]
    return Table(shown, header=header)


def figures(rows: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Mean errors: unadapted, returned, and as estimated."""
    known = [row["estimate"]["after"][0] for row in rows if row["estimate"]]
    return [
        number_entry(mean(row["unadapted"] for row in rows)),
        number_entry(mean(row["returned"] for row in rows)),
        number_entry(mean(known)) if known else "",
    ]


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one, two = commands.add_parser("run"), commands.add_parser("table")
    for each in (one, two):
        each.add_argument("--results", type=Path, required=True)
    one.add_argument("--data", type=Path, required=True)
    one.add_argument("--models", nargs="+", choices=list(MODELS), default=["resnet50"])
    one.add_argument("--shifts", nargs="+", default=["imagenet/test:5"])
    one.add_argument("--images", type=int, nargs="+", default=[5000])
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--seconds", type=float, default=1e9)
    one.add_argument("--device")
    one.set_defaults(call=run)
    two.set_defaults(call=lambda args: print(table(read(args.results)).text()))
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
