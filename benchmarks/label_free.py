"""Which learning rate is a sane default, and which label-free score tells good from bad?

    python benchmarks/label_free.py run RESULTS.jsonl --model digits --shifts dev
    python benchmarks/label_free.py run RESULTS.jsonl --model cifar --shifts dev \
        --weights W --data DIR --limit 2000
    python benchmarks/label_free.py report RESULTS.jsonl

Every run adapts for five epochs with the guard observing and keeps, per epoch, the true error and
everything that can be had without labels. Runs that are in the file already are not run again.
Choices are made on the hold-out shifts (``dev``); ``test`` shifts only report how they fared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import acclimate
from acclimate.data import Preprocessing
from acclimate.data.corruptions import corrupt
from acclimate.models import LoadedModel, fill, load_weights
from acclimate.models.networks.wide_resnet import WideResNet
from label_free_report import report

SHIFTS = {
    "dev": ["speckle_noise", "gaussian_blur", "saturate"],
    "test": [
        "gaussian_noise",
        "impulse_noise",
        "brightness",
        "contrast",
        "pixelate",
        "fog",
        "jpeg_compression",
    ],
}
RATES = [
    ("sgd", 1e-3),
    ("sgd", 1e-2),
    ("sgd", 1e-1),
    ("adam", 1e-4),
    ("adam", 1e-3),
    ("adam", 1e-2),
]
# What the target set holds: everything, a handful, or two of the classes only (a hard case: batch
# statistics then say more about the classes than about the shift).
TARGETS = ["all", "100 images", "two classes"]


def target(images: np.ndarray, labels: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    if kind == "100 images":
        return images[:100], labels[:100]
    if kind == "two classes":
        chosen = np.isin(labels, (3, 5))
        return images[chosen], labels[chosen]
    return images, labels


def digits_case() -> tuple[LoadedModel, np.ndarray, np.ndarray]:
    from acclimate.data.digits import digits
    from acclimate.models.networks.digits import load_digits_model

    return (load_digits_model(), *digits("held-out"))


def cifar_case(weights: Path, data: Path) -> tuple[LoadedModel, np.ndarray, np.ndarray]:
    model = WideResNet(40, 2)
    fill(model, load_weights(weights))
    record = Preprocessing(size=(32, 32), mean=(0.5,) * 3, std=(0.5,) * 3)
    test = np.load(data / "cifar10-test.npz")
    loaded = LoadedModel(name="cifar", model=model.eval(), preprocessing=record)
    return loaded, test["images"], test["labels"]


def cases(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    # Small pictures are barely touched by the small-picture constants of the milder severities.
    preset = "imagenet" if args.model == "digits" else "cifar"
    for shift, severity, kind, recipe, (optimizer, lr) in itertools.product(
        args.names or SHIFTS[args.shifts], args.severities, args.targets, ["ent", "rpl"], RATES
    ):
        yield {
            "model": args.model,
            "split": args.shifts,
            "shift": shift,
            "severity": severity,
            "preset": preset,
            "limit": args.limit,
            "target": kind,
            "recipe": recipe,
            "optimizer": optimizer,
            "lr": lr,
        }


def run(args: argparse.Namespace) -> None:
    loaded, images, labels = (
        digits_case() if args.model == "digits" else cifar_case(args.weights, args.data)
    )
    images, labels = images[: args.limit], labels[: args.limit]
    done = set()
    if args.results.exists():
        done = {
            json.dumps(json.loads(line)["case"]) for line in args.results.read_text().splitlines()
        }
    corrupted: dict[tuple[str, int], np.ndarray] = {}
    began = time.time()
    for case in cases(args):
        if json.dumps(case) in done:
            continue
        if time.time() - began > args.seconds:
            print("out of time; run again to go on")
            return
        shift, severity = str(case["shift"]), int(case["severity"])
        if (shift, severity) not in corrupted:
            corrupted = {
                (shift, severity): corrupt(images, shift, severity, preset=case["preset"], seed=0)
            }
        pictures, truth = target(corrupted[shift, severity], labels, str(case["target"]))
        options = {"optimizer": case["optimizer"], "optimizer.lr": case["lr"], "epochs": 5}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = acclimate.adapt(
                loaded, pictures, str(case["recipe"]), options=options, labels=truth,
                guard="observe", keep="best", progress=False,
            )  # fmt: skip
        history = result.history.to_dict()
        for scores in [
            history["source"],
            history["start"],
            history["final"],
            *(e["after_epoch"] for e in history["epochs"]),
        ]:
            scores.pop("class_counts")
        for record in history["epochs"]:
            record.pop("before_update")
        row = {"case": case, "history": history, "verdict": result.verdict.word}
        with args.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        errors = [f"{e['after_epoch']['error']:.1f}" for e in history["epochs"]]
        print(
            *case.values(),
            f"{result.error_before:.1f} ->",
            *errors,
            f"[{time.time() - began:.0f} s]",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run")
    runner.add_argument("results", type=Path)
    runner.add_argument("--model", choices=["digits", "cifar"], required=True)
    runner.add_argument("--shifts", choices=sorted(SHIFTS), required=True)
    runner.add_argument("--names", nargs="+", help="only these of the shifts")
    runner.add_argument("--severities", type=int, nargs="+", default=[3, 5])
    runner.add_argument("--targets", nargs="+", default=TARGETS)
    runner.add_argument("--weights", type=Path)
    runner.add_argument("--data", type=Path)
    runner.add_argument("--limit", type=int)
    runner.add_argument("--seconds", type=float, default=1e9)
    runner.set_defaults(call=run)
    reporter = commands.add_parser("report")
    reporter.add_argument("results", type=Path, nargs="+")
    reporter.set_defaults(call=lambda args: print(report(args.results)))
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
