"""Where does a real network collapse? Student and teacher temperatures on CIFAR-10-C.

    python benchmarks/temperatures.py --root DATA --out benchmarks/results/temperatures.json

For every pair of temperatures, with and without stop-gradient, a network is adapted from the source
anew and scored on the images it adapted to. The settings below were fixed before the first run;
what the two-point model says about them is in docs/theory.md. Cells that are in the file already
are not run again. ``temperatures_report.py`` makes figures and tables of the stored file.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acclimate.data import Shift, ShiftedSource, open_dataset
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models import load
from acclimate.models.device import copy_model

MODEL = "acclimate:wrn-26-2-bn-cifar10"
SHIFTS = ("cifar/gaussian_blur:5", "cifar/gaussian_noise:5")  # one of dev, one of test
TEMPERATURES = [float(t) for t in np.geomspace(1e-2, 1e1, 13).round(6)]  # four to a decade
HARD = 0.0  # a teacher's temperature: its limit, the class it thinks likeliest
BATCH, EPOCHS, LR = 200, 2, 1e-3
METHODS = {"pseudo-labels": True, "entropy": False}  # with stop-gradient, and without


def main() -> None:
    """Run what is missing, then print a table per method and shift."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="where cifar10-test.npz lies")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file to add to")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--images", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--every", type=int, default=1, help="every n-th temperature only")
    args = parser.parse_args()
    if args.workers > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // args.workers))
    cells: dict[str, dict[str, Any]] = {}
    if args.out.exists():
        kept = json.loads(args.out.read_text(encoding="utf-8"))
        cells = kept["cells"]
        if kept["settings"] != _settings(args.images):
            parser.error(f"{args.out} holds cells of other settings; choose another --out")
    temperatures = TEMPERATURES[:: args.every]
    missing = [
        (shift, method, student, teacher)
        for shift in SHIFTS
        for method in METHODS
        for student in temperatures
        for teacher in _teachers(method, temperatures)
        if _key(shift, method, student, teacher) not in cells
    ]
    began = time.perf_counter()
    for key, cell in _run(missing, args.root, args.images, workers=args.workers):
        cells[key] = cell
        if len(cells) % 50 == 0:
            print(f"{len(cells)} cells, {time.perf_counter() - began:.0f} s", flush=True)
            _write(args.out, cells, args.images)
    _write(args.out, cells, args.images)
    for shift in SHIFTS:
        for method in METHODS:
            _print(cells, shift, method, temperatures)


def _teachers(method: str, temperatures: list[float]) -> list[float]:
    """Hard labels beside the soft ones; entropy has none."""
    return [HARD, *temperatures] if METHODS[method] else temperatures


def _key(shift: str, method: str, student: float, teacher: float) -> str:
    return f"{shift} {method} {student:g} {teacher:g}"


def _run(
    missing: list[tuple[str, str, float, float]], root: Path, images: int, *, workers: int
) -> Any:
    if workers <= 1:
        _start(root, images)
        yield from map(_cell, missing)
        return
    with get_context("spawn").Pool(workers, _start, (root, images)) as pool:
        yield from pool.imap_unordered(_cell, missing)


_HELD: dict[str, Any] = {}


def _start(root: Path, images: int) -> None:
    """Load the model and both shifts once per process, onto the device."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = load(MODEL)
    clean = open_dataset("cifar10", root, preprocessing=loaded.preprocessing, progress=False)
    assert clean.labels is not None
    assert loaded.preprocessing is not None
    _HELD.update(model=loaded.model.to(device).eval(), labels=clean.labels[:images].to(device))
    for shift in SHIFTS:
        seen = ShiftedSource(clean, Shift.parse(shift), device=device).read(torch.arange(images))
        _HELD[shift] = loaded.preprocessing.normalize(seen.to(device))


def _cell(cell: tuple[str, str, float, float]) -> tuple[str, dict[str, Any]]:
    shift, method, student, teacher = cell
    inputs, labels = _HELD[shift], _HELD["labels"]
    recipe = get_recipe(
        "soft",
        {
            "teacher": "instant",
            "objective.student_temperature": student,
            "objective.teacher_temperature": teacher,
            "objective.stop_gradient": METHODS[method],
            "optimizer.lr": LR,
            "batch_size": BATCH,
        },
    )
    learner = Learner(copy_model(_HELD["model"]), recipe, batch_size=BATCH)
    order = torch.Generator().manual_seed(0)
    before = _error(learner, inputs, labels)
    errors = []
    for _ in range(EPOCHS):
        learner.start_epoch()
        for chosen in torch.randperm(len(inputs), generator=order).split(BATCH):
            learner.step(inputs[chosen.to(inputs.device)])
        errors.append(_error(learner, inputs, labels))
    source = _source_error(inputs, labels)
    return _key(*cell), {"source": source, "batch_norm": before, "after_epoch": errors}


@torch.no_grad()
def _error(learner: Learner, inputs: Tensor, labels: Tensor) -> float:
    answers = torch.cat([learner.predict(part).argmax(dim=1) for part in inputs.split(BATCH)])
    return round(100 * float((answers != labels).double().mean()), 3)


@torch.no_grad()
def _source_error(inputs: Tensor, labels: Tensor) -> float:
    key = f"source {id(inputs)}"
    if key not in _HELD:
        model = _HELD["model"]
        answers = torch.cat([model(part).argmax(dim=1) for part in inputs.split(1000)])
        _HELD[key] = round(100 * float((answers != labels).double().mean()), 3)
    return float(_HELD[key])


def _settings(images: int) -> dict[str, Any]:
    return {
        "model": MODEL,
        "images": images,
        "batch_size": BATCH,
        "epochs": EPOCHS,
        "lr": LR,
        "temperatures": TEMPERATURES,
        "torch": torch.__version__,
    }


def _write(path: Path, cells: dict[str, dict[str, Any]], images: int) -> None:
    text = json.dumps(
        {"settings": _settings(images), "cells": dict(sorted(cells.items()))}, indent=0
    )
    path.with_suffix(".partial").write_text(text + "\n", encoding="utf-8")
    path.with_suffix(".partial").replace(path)


def _print(cells: dict[str, Any], shift: str, method: str, temperatures: list[float]) -> None:
    some = cells[_key(shift, method, temperatures[0], temperatures[0])]
    print(
        f"\n{shift}, {method}: error after {EPOCHS} epochs less that with new statistics alone "
        f"({some['batch_norm']:.1f} %; source {some['source']:.1f} %); "
        "rows: student's temperature, columns: teacher's"
    )
    teachers = _teachers(method, temperatures)
    print("        " + "".join(f"{teacher:8.3g}" for teacher in teachers))
    for student in reversed(temperatures):
        row = [cells[_key(shift, method, student, teacher)] for teacher in teachers]
        gains = [each["after_epoch"][-1] - each["batch_norm"] for each in row]
        print(f"{student:8.3g}" + "".join(f"{gain:+8.1f}" for gain in gains))


if __name__ == "__main__":
    main()
