"""How fast to learn: errors after each epoch at several rates, on dev shifts.

    python benchmarks/rates.py run --data DIR --results FILE [--models resnet50] [--images 2000]
    python benchmarks/rates.py table --results FILE

DIR is that of ``bank.py``. ``ent`` starts from new statistics; rates are for batches of 128.
The table asks whether it is rate × images that counts, and where learning breaks down.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from acclimate.learner.learner import Learner
from acclimate.table import Entry, Number, Table, number_entry
from bank import BATCH, MODELS, Bank, Case, learner_of, read, run_and_table

SHIFTS = {
    "imagenet": ("imagenet/speckle_noise:5", "imagenet/gaussian_blur:4", "imagenet/spatter:4",
                 "low-light:3", "gamma:5", "imagenet/saturate:5"),
    "cifar": ("cifar/speckle_noise:5", "cifar/gaussian_blur:5", "cifar/spatter:5", "low-light:3"),
}  # fmt: skip
RATES = {"imagenet": (1e-2, 3e-2, 1e-1, 3e-1), "cifar": (1e-2, 3e-2, 1e-1, 3e-1)}
TOTALS = (25, 50, 100, 250, 500, 1000, 2000)
"""Errors are recorded where rate × images seen passes each of these."""
MOST = 30
"""Epochs at the most."""


def error(learner: Learner, images: Tensor, labels: Tensor) -> float:
    """The error with the statistics of batches, in percent."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    wrong = torch.zeros((), device=images.device)
    for rows in order.to(images.device).split(learner.batch_size):
        wrong += (learner.logits(images[rows]).argmax(dim=1) != labels[rows]).sum()
    return 100 * float(wrong) / len(images)


def run_one(bank: Bank, case: Case, rate: float) -> dict[str, Any]:
    """One rate: pairs of rate × images seen, and the error."""
    images, labels = bank.of(case)
    loaded, count = bank.model(case.model), len(images)
    learner = learner_of(loaded, "batch", "ent", rate * BATCH / 128, bank.device, count)
    found, seen = [(0.0, error(learner, images, labels))], 0
    for total in TOTALS:
        while rate * seen < total and seen < MOST * count:
            order = torch.randperm(count, generator=torch.Generator().manual_seed(seen))
            for rows in order.to(images.device).split(learner.batch_size):
                if rate * seen < total and len(rows) == learner.batch_size:
                    learner.step(images[rows])
                    seen += len(rows)
        if rate * seen >= total:
            found.append((float(total), error(learner, images, labels)))
    learner.release()
    return {
        "model": case.model, "shift": case.shift, "images": count, "rate": rate, "errors": found,
    }  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Run what is missing, for so many seconds."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bank, began = Bank(args.data, device), time.monotonic()
    known = {(r["model"], r["shift"], r["images"], r["rate"]) for r in read(args.results)}
    for model in args.models:
        for shift in SHIFTS[MODELS[model][1]]:
            for count in args.images:
                for rate in RATES[MODELS[model][1]]:
                    if (model, shift, count, rate) in known:
                        continue
                    if time.monotonic() - began > args.seconds:
                        print("some are left: run again to continue")
                        return
                    case = Case(model=model, shift=shift, classes="all", images=count)
                    row = run_one(bank, case, rate)
                    with args.results.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(model, shift, count, rate, row["errors"], flush=True)


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Mean change of the error since new statistics, by rate and rate × images seen.

    Only of shifts that have been measured at every rate, and so far.
    """
    shown: list[list[Entry]] = []
    for model, images in sorted({(row["model"], row["images"]) for row in rows}):
        own = [row for row in rows if (row["model"], row["images"]) == (model, images)]
        rates = sorted({row["rate"] for row in own})
        by_shift = {
            shift: {row["rate"]: dict(row["errors"]) for row in own if row["shift"] == shift}
            for shift in {row["shift"] for row in own}
        }
        whole = [each for each in by_shift.values() if len(each) == len(rates)]
        for rate in rates:
            errors = [each[rate] for each in whole]
            cells = []
            for total in TOTALS:
                changes = [each[total] - each[0.0] for each in errors if total in each]
                all_there = errors and len(changes) == len(errors)
                cells.append(number_entry(mean(changes)) if all_there else "–")
            counted = Number(str(len(errors)), len(errors))
            size = Number(f"{images:,}", images)
            shown.append([model, size, counted, Number(f"{rate:g}", rate), *cells])
    header = ["model", "images", "shifts", "rate", *(f"{total:,}" for total in TOTALS)]
    return Table(shown, header=header)


def pages(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of docs/defaults.md."""
    return table(rows).markdown()


def main() -> None:
    """Run, or print the table."""
    parser, one = run_and_table(str(__doc__), run, table)
    one.add_argument("--images", type=int, nargs="+", default=[2000])
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
