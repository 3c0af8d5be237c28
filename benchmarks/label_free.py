"""Which learning rate is a sane default, and which label-free score tells good from bad?

    python benchmarks/label_free.py run RESULTS.jsonl --model digits --shifts dev
    python benchmarks/label_free.py run RESULTS.jsonl --model cifar --shifts dev \
        --weights W --data DIR --limit 2000
    python benchmarks/label_free.py report RESULTS.jsonl

Every run adapts for five epochs with the guard observing and stores, per epoch, the true error and
everything that can be had without labels. Runs that are in the file already are not run again.
Choices are made on the hold-out shifts (``dev``); ``test`` shifts only report how they fared.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import acclimate
from acclimate.data import Preprocessing
from acclimate.data.corruptions import corrupt
from acclimate.metrics.scores import information_maximization
from acclimate.models import LoadedModel, fill, load_weights
from acclimate.models.networks.wide_resnet import WideResNet
from acclimate.table import Entry, Table, number_entry

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
    # Small images are barely touched by the small-image constants of the milder severities.
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
            print("out of time; run again to continue")
            return
        shift, severity = str(case["shift"]), int(case["severity"])
        if (shift, severity) not in corrupted:
            corrupted = {
                (shift, severity): corrupt(images, shift, severity, preset=case["preset"], seed=0)
            }
        shifted, truth = target(corrupted[shift, severity], labels, str(case["target"]))
        options = {"optimizer": case["optimizer"], "optimizer.lr": case["lr"], "epochs": 5}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = acclimate.adapt(
                loaded, shifted, str(case["recipe"]), options=options, labels=truth,
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


MAX_DRIFT = 0.15
Row = dict[str, Any]
Score = Callable[[Row, float], float]


def _im(s: Row, _: float = 0.0) -> float:
    return information_maximization(diversity=s["diversity"], entropy=s["entropy"])


SCORES: dict[str, Score] = {
    "last epoch": lambda s, drift: 0.0,  # ties go to the later epoch
    "no learning (start)": lambda s, drift: -drift,
    "confidence": lambda s, drift: s["confidence"],
    "diversity + confidence": _im,
    "nuclear norm": lambda s, drift: s["nuclear_norm"],
    "agreement with source": lambda s, drift: s["agreement"],
    f"agreement with source, drift <= {MAX_DRIFT}": (
        lambda s, drift: s["agreement"] if drift <= MAX_DRIFT else -1e3 - drift
    ),
    f"agreement + diversity + confidence, drift <= {MAX_DRIFT}": (
        lambda s, drift: s["agreement"] + _im(s) / 2.3 if drift <= MAX_DRIFT else -1e3 - drift
    ),
    f"diversity + confidence, drift <= {MAX_DRIFT}": (
        lambda s, drift: _im(s) if drift <= MAX_DRIFT else -1e3 - drift
    ),
}


def candidates(row: Row) -> list[tuple[Row, float]]:
    history = row["history"]
    epochs = [(e["after_epoch"], _finite(e["drift"])) for e in history["epochs"]]
    return [(history["start"], 0.0), *epochs]


def _finite(value: float) -> float:
    return value if np.isfinite(value) else 1e9


def rates_table(rows: list[Row]) -> str:
    """Change of error against the start (statistics only), mean and worst, after five epochs."""
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for row in rows:
        case = row["case"]
        if case["target"] == "all":
            errors = [s["error"] for s, _ in candidates(row)]
            key = (case["model"], case["recipe"], case["optimizer"], case["lr"])
            found[key].append(errors[-1] - errors[0])
    lines = [
        [*map(str, key), f"{len(changes)}", f"{np.mean(changes):+.1f}", f"{max(changes):+.1f}"]
        for key, changes in sorted(found.items())
    ]
    header = ["model", "recipe", "optimiser", "lr", "runs", "mean change", "worst change"]
    return Table(lines, header).markdown()


def scores_table(rows: list[Row]) -> str:
    """Error of the state a score picks, over the best state of the same run."""
    lines: list[list[Entry]] = []
    for name, score in SCORES.items():
        regrets = []
        for row in rows:
            states = candidates(row)
            values = [score(s, drift) for s, drift in states]
            best = max(range(len(states)), key=lambda i: (values[i], i))
            errors = [s["error"] for s, _ in states]
            regrets.append(errors[best] - min(errors))
        numbers = (float(np.mean(regrets)), float(np.percentile(regrets, 95)), max(regrets))
        lines.append([name, f"{len(rows)}", *(number_entry(n, digits=2) for n in numbers)])
    header = ["picks by", "runs", "mean regret", "95th percentile", "worst"]
    return Table(lines, header).markdown()


def _text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def report(paths: list[Path]) -> str:
    rows = [json.loads(line) for path in paths for line in _text(path).splitlines()]
    parts: list[str] = []
    for split in ("dev", "test"):
        chosen = [row for row in rows if row["case"]["split"] == split]
        if not chosen:
            continue
        models = sorted({row["case"]["model"] for row in chosen})
        parts += [
            f"## {split} shifts ({', '.join(models)}; {len(chosen)} runs)",
            "Change of error (points) by five epochs of learning, against new statistics alone:",
            rates_table(chosen),
            "Which state a label-free score picks (points of error):",
            scores_table(chosen),
        ]
    return "\n\n".join(parts) + "\n"


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
