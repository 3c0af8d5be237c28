"""Does a faster way to run a model learn the same? Real photos, trained weights, shifted images.

    python benchmarks/precision.py run --data DIR --results FILE [--models resnet50] \\
        [--shifts imagenet/dev:1 imagenet/dev:3 imagenet/dev:5] [--images 2000] [--seconds 300]
    python benchmarks/precision.py table --results FILE

DIR is that of ``bank.py``. For each shift ``ent`` learns for one epoch in each way, exactly first;
stored are the errors on the fly and afterwards, and what the check of the first batch compares:
how far probabilities are apart, confident predictions flipped, cosine and length of gradients.
Further seeds, of the order of the images, tell what differences between runs mean nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from acclimate.acceleration import EXACT, PLAIN, Acceleration
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models.device import copy_model
from acclimate.table import Entry, Table, number_entry
from bank import Bank, Case, read, run_and_table
from defaults import shifts_of

BATCH, LR = 128, 1e-2
COMPARED = (32, 128)
"""So many images of the first batch are compared."""

WAYS = {
    "exact": EXACT,
    "plain": PLAIN,
    "fp32 fused": Acceleration(channels_last=True, fused=True, recorded=True),
    "bf16 fused": Acceleration(channels_last=True, half=True, fused=True, recorded=True),
}
ON_CPU = {"exact": EXACT, "bf16 fused": Acceleration(channels_last=True, half=True)}


def learner_of(bank: Bank, name: str, way: Acceleration, count: int) -> Learner:
    """A learner that runs this way, unchecked."""
    recipe = get_recipe("ent", {"optimizer.lr": LR})
    model = copy_model(bank.model(name).model).to(bank.device)
    learner = Learner(model, recipe, batch_size=min(BATCH, count), acceleration=way)
    learner.network.unverified = False
    return learner


def errors(learner: Learner, images: Tensor, labels: Tensor, seed: int) -> dict[str, float]:
    """Errors in percent, on the fly and after one epoch, and seconds of the epoch."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(images), generator=generator).to(images.device)
    size, wrong = learner.batch_size, torch.zeros((), device=images.device)
    learner.step(images[order[:size]])  # compiles and captures; the clock starts after
    began = time.perf_counter()
    for rows in order.split(size):
        if len(rows) == size:
            logits = learner.step(images[rows]).logits
            wrong += (logits.argmax(dim=1) != labels[rows]).sum()
    seen = len(order) // size * size
    found = {"on the fly": 100 * float(wrong) / seen, "seconds": time.perf_counter() - began}
    wrong.zero_()
    for rows in order.split(size):
        wrong += (learner.logits(images[rows]).argmax(dim=1) != labels[rows]).sum()
    return {**found, "after": 100 * float(wrong) / len(order)}


def compared(fast: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> dict[str, float]:
    """What a check can see."""
    ours, theirs = (logits.float().softmax(dim=1) for logits, _ in (fast, exact))
    confident = theirs.amax(dim=1) > 0.9
    flipped = ours.argmax(dim=1) != theirs.argmax(dim=1)
    a, b = (gradient.double() for _, gradient in (fast, exact))
    return {
        "apart": float((ours - theirs).abs().sum(dim=1).mean() / 2),
        "flipped": float(flipped.float().mean()),
        "confident flipped": int((flipped & confident).sum()),
        "cosine": float(a @ b / (a.norm() * b.norm())),
        "length": float(a.norm() / b.norm()),
    }


def run_one(bank: Bank, model: str, shift: str, count: int, seeds: Sequence[int]) -> dict[str, Any]:
    """One shift in every way."""
    images, labels = bank.of(Case(model=model, shift=shift, classes="all", images=count))
    ways: dict[str, Any] = {}
    probes: dict[str, dict[int, tuple[Tensor, Tensor]]] = {}
    for name, way in (WAYS if images.is_cuda else ON_CPU).items():
        learner = learner_of(bank, model, way, count)
        probes[name] = {n: learner._probe(images[:n], gradients=True) for n in COMPARED}
        learner.release()
        runs = []
        for seed in seeds if name in ("exact", "bf16 fused") else seeds[:1]:
            learner = learner_of(bank, model, way, count)
            runs.append(errors(learner, images, labels, seed))
            learner.release()
        checks = {n: compared(probes[name][n], probes["exact"][n]) for n in COMPARED}
        ways[name] = {"runs": runs, "checks": {str(n): each for n, each in checks.items()}}
    return {"model": model, "shift": shift, "images": count, "ways": ways}


def run(args: argparse.Namespace) -> None:
    """Run what is missing, for so many seconds."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bank, began = Bank(args.data, device), time.monotonic()
    known = {(row["model"], row["shift"], row["images"]) for row in read(args.results)}
    for model in args.models:
        for shift in shifts_of(args.shifts):
            if (model, shift, args.images) in known:
                continue
            if time.monotonic() - began > args.seconds:
                print("some are left: run again to continue")
                return
            row = run_one(bank, model, shift, args.images, args.seeds)
            with args.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            after = {name: way["runs"][0]["after"] for name, way in row["ways"].items()}
            cosine = row["ways"]["bf16 fused"]["checks"]["32"]["cosine"]
            print(model, shift, {k: round(v, 1) for k, v in after.items()}, cosine, flush=True)


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Errors afterwards with the first seed by way, over all seeds, and what the check compares."""
    shown: list[list[Entry]] = []
    for row in rows:
        ways = row["ways"]
        exact, half = ([run["after"] for run in ways[w]["runs"]] for w in ("exact", "bf16 fused"))
        check = ways["bf16 fused"]["checks"]["32"]
        shown.append(
            [
                row["model"],
                row["shift"],
                *(number_entry(way["runs"][0]["after"]) for way in ways.values()),
                number_entry(mean(half) - mean(exact), digits=2),
                number_entry(stdev(exact), digits=2),
                number_entry(check["cosine"], digits=3),
                number_entry(check["length"], digits=2),
                number_entry(check["apart"], digits=3),
                number_entry(check["confident flipped"], digits=0),
            ]
        )
    header = ["model", "shift", *rows[0]["ways"], "bf16 - exact", "seeds of exact", "cosine"]
    return Table(shown, header=[*header, "length", "apart", "confident flipped"])


def pages(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of docs/how-a-step-works.md."""
    return table(rows).markdown()


def main() -> None:
    """Run, or print the table."""
    parser, one = run_and_table(str(__doc__), run, table)
    one.add_argument(
        "--shifts", nargs="+", default=[f"imagenet/dev:{severity}" for severity in (5, 3, 1)]
    )
    one.add_argument("--images", type=int, default=2000)
    one.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
