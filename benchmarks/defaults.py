"""What ``adapt(model, images)`` returns without options: on real photos, for every shift.

    python benchmarks/defaults.py run --data DIR --results FILE [--models resnet50] \\
        [--shifts imagenet/test:5] [--images 5000] [--seconds 500] [--part 0/8]
    python benchmarks/defaults.py bank --data DIR --results FILE [--half test] [--part 0/8]
    python benchmarks/defaults.py table --results FILE [--bank results/bank.test.jsonl.gz]

DIR is that of ``bank.py``. "bank" is the same for the bank's cases, whose best treatment is known:
the table has by how much more is wrong than with that one. Runs that are in FILE are not run again:
stop and resume at any time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

import acclimate
from acclimate.bench.shifts import made_shifts
from acclimate.data.shift import Shift
from acclimate.table import Entry, Number, Table, number_entry
from bank import HOPELESS, MODELS, Bank, Case, cases, read, rounded

BANK = Path(__file__).parent / "results" / "bank.test.jsonl.gz"


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
    seen_through = None if shift == "clean" else shift
    row = called(bank, model, images, truth, shift=seen_through, seed=seed)
    return {"model": model, "shift": shift, "images": len(truth), "seed": seed, **row}


def run_case(bank: Bank, case: Case) -> dict[str, Any]:
    """The same of a case of the bank."""
    images, labels = bank.of(case)
    row = called(bank, case.model, images.cpu(), labels.cpu().numpy(), shift=None, seed=0)
    return {"case": asdict(case), **row}


def fit_of() -> str:
    """Which fit of the estimate it was."""
    return hashlib.sha256((files("acclimate.guard") / "estimate.npz").read_bytes()).hexdigest()[:8]


def called(
    bank: Bank, model: str, images: Any, truth: np.ndarray, *, shift: str | None, seed: int
) -> dict[str, Any]:
    """What the call gave; it is not shown the labels."""
    began = time.perf_counter()
    result = acclimate.adapt(
        bank.model(model), images, shift=shift, device=bank.device, seed=seed, progress=False
    )
    seconds = time.perf_counter() - began
    before, after = result.predictions_before, result.predictions
    assert before is not None
    estimate = result.estimated_error
    return {
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
        "fit": fit_of(),
        "cost": result.cost,
        "seconds": seconds,
        "device": str(bank.device),
    }  # fmt: skip


def key(row: Mapping[str, Any]) -> str:
    """What a run is known by."""
    names = ("case",) if "case" in row else ("model", "shift", "images", "seed")
    return json.dumps([row[name] for name in names])


def run(args: argparse.Namespace) -> None:
    """Run what is missing, for so many seconds."""
    wanted = [
        {"model": model, "shift": shift, "images": images, "seed": args.seed}
        for shift in shifts_of(args.shifts)
        for model in args.models
        for images in args.images
    ]
    work(args, wanted, lambda bank, row: run_one(bank, *row.values()))


def run_bank(args: argparse.Namespace) -> None:
    """The same of the bank's cases, as far as their treatments are known."""
    known = {json.dumps(row["case"]) for row in read(args.bank)}
    wanted = [{"case": asdict(case)} for case in cases(args.half)]
    wanted = [row for row in wanted if json.dumps(row["case"]) in known]
    random.Random(0).shuffle(wanted)  # all networks, whenever it is stopped
    work(args, wanted, lambda bank, row: run_case(bank, Case(**row["case"])))


def work(
    args: argparse.Namespace,
    wanted: Sequence[dict[str, Any]],
    do: Callable[[Bank, dict[str, Any]], dict[str, Any]],
) -> None:
    """Do what is missing of a part."""
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    bank, began = Bank(args.data, device), time.monotonic()
    part, parts = map(int, args.part.split("/"))
    files = args.results.parent.glob(f"{args.results.stem}*{args.results.suffix}")
    known = {key(row) for path in files for row in read(path)}
    for row in wanted[part::parts]:
        if key(row) in known:
            continue
        if time.monotonic() - began > args.seconds:
            print("some are left: run again to continue")
            return
        done = do(bank, row)
        own = args.results.with_stem(f"{args.results.stem}.{part}") if parts > 1 else args.results
        with own.open("a") as file:
            file.write(json.dumps(rounded(done)) + "\n")
        print(
            f"{key(row)}: {done['unadapted']:.1f} -> {done['returned']:.1f} {done['verdict']}, "
            f"{done['reason']} [{done['seconds']:.1f} s]",
            flush=True,
        )


def shifts_of(names: Sequence[str]) -> Iterator[str]:
    """Names as the command line takes them; "clean" is none."""
    for name in names:
        yield from ["clean"] if name == "clean" else map(str, made_shifts([name]))


def regret_table(rows: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, Any]]) -> Table:
    """Points of error more than with the best treatment, by what the images hold."""
    best = {
        json.dumps(row["case"]): min(state["error"] for state in row["states"]) for row in known
    }
    groups: dict[str, list[tuple[float, float, str]]] = {}
    for row in rows:
        regret = row["returned"] - best[json.dumps(row["case"])]
        change = row["returned"] - row["unadapted"]
        case = row["case"]
        kind = "a few" if case["classes"] in ("1", "2", "5", "10", "20") else "all"
        if case["shift"] in HOPELESS["test"]:
            kind = "hopeless"
        for name in (kind, "together"):
            groups.setdefault(name, []).append((regret, change, row["verdict"]))
    shown: list[list[Entry]] = []
    for name in ("all", "a few", "hopeless", "together"):
        own = groups.get(name, [])
        if not own:
            continue
        worse = [verdict for _, change, verdict in own if change > 1]
        shown.append(
            [
                name,
                Number(str(len(own)), len(own)),
                number_entry(mean(regret for regret, _, _ in own)),
                number_entry(100 * len(worse) / len(own)),
                number_entry(100 * sum(v == "helpful" for v in worse) / len(own)),
                number_entry(
                    100 * sum(regret > 2 and change > -1 for regret, change, _ in own) / len(own)
                ),
            ]
        )
    header = ["classes", "cases", "regret, points", "worse than unadapted, %"]
    return Table(shown, header=[*header, "of these called helpful, %", "gain untaken, %"])


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each shift, those of severity 5 first, and the mean over all."""
    shown: list[list[Entry]] = []
    groups = sorted({(row["model"], row["images"]) for row in rows})
    for model, images in groups:
        own = [r for r in rows if (r["model"], r["images"]) == (model, images)]
        for row in sorted(own, key=lambda r: (r["shift"] != "clean", -int(r["shift"][-1] == "5"))):
            name = row["shift"].rpartition("/")[2]
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
    one, three, two = (commands.add_parser(name) for name in ("run", "bank", "table"))
    for each in (one, two, three):
        each.add_argument("--results", type=Path, required=True)
    for each in (one, three):
        each.add_argument("--data", type=Path, required=True)
        each.add_argument("--seconds", type=float, default=1e9)
        each.add_argument("--device")
        each.add_argument("--part", default="0/1", help="which part: 0/3, 1/3, 2/3")
    for each in (two, three):
        each.add_argument("--bank", type=Path, default=BANK)
    one.add_argument("--models", nargs="+", choices=list(MODELS), default=["resnet50"])
    one.add_argument("--shifts", nargs="+", default=["imagenet/test:5"])
    one.add_argument("--images", type=int, nargs="+", default=[5000])
    one.add_argument("--seed", type=int, default=0)
    one.set_defaults(call=run)
    three.add_argument("--half", choices=("dev", "test"), default="test")
    three.set_defaults(call=run_bank)
    two.set_defaults(call=show)
    args = parser.parse_args()
    args.call(args)


def photos(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of README: a ResNet-50 at severity 5."""
    own = {
        Shift.parse(row["shift"]).name: row
        for row in rows
        if row.get("model") == "resnet50" and row["images"] == 5000 and row["shift"].endswith(":5")
    }
    shown: list[list[Entry]] = [[name, *figures([row])] for name, row in sorted(own.items())]
    shown.append([f"mean of {len(own)}", *figures(list(own.values()))])
    header = ["corruption", "unadapted", "adapted", "estimated"]
    return Table(shown, header=header).markdown()


def pages(rows: Sequence[Mapping[str, Any]]) -> str:
    """The tables of docs/defaults.md."""
    of_bank = [row for row in rows if "case" in row]
    plain = [row for row in rows if "case" not in row]
    return "\n\n".join(
        [table(plain).markdown(), regret_table(of_bank, read(BANK)).markdown()],
    )


def show(args: argparse.Namespace) -> None:
    """Print the tables."""
    rows = read(args.results)
    if plain := [row for row in rows if "case" not in row]:
        print(table(plain).text(), end="\n\n")
    if of_bank := [row for row in rows if "case" in row]:
        print(regret_table(of_bank, read(args.bank)).text())


if __name__ == "__main__":
    main()
