"""Where does a real network collapse? Student and teacher temperatures on CIFAR-10-C.

    python benchmarks/temperatures.py sweep --root DATA --out benchmarks/results/temperatures.json
    python benchmarks/temperatures.py start --root DATA --out FILE
    # FILE: benchmarks/results/temperatures_start.json
    python benchmarks/temperatures.py report      # writes docs/figures, prints the tables

``sweep``: for every pair of temperatures, with and without stop-gradient, a network is adapted from
the source anew and scored on the images it adapted to. The settings below were fixed before the
first run; the two-point model's predictions for them are in docs/theory.md. Cells that are in the
file already are not run again.

``start``: why does entropy minimisation not collapse where the proposition says? It takes the
network with new batch statistics and nothing learnt, and asks the theory about the outputs it has
there, which are far from zero. Minutes on two cores; written after the sweep, to explain it.

- ``shifts``: margins; the teacher's temperature at which the loss is flat in the logits' common
  scale; the share of images whose own logits are pulled inwards.
- ``linear``: the theory's linear student on the network's last features, from the network's last
  weights, with the sweep's learning rate, momentum and number of steps; cells as the sweep's.
- ``network``: some cells on few images, with the size of the outputs and how many images the most
  used class has.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor, nn

from acclimate.data import Shift, ShiftedSource, open_dataset
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models import load
from acclimate.models.device import copy_model
from acclimate.report.charts import svg
from acclimate.report.theory import real_network_figure
from acclimate.table import Table
from acclimate.theory import bound_on_student
from acclimate.theory.many_points import simulate_points, slope

ROOT = Path(__file__).parents[1]
RESULTS, FIGURES = ROOT / "benchmarks/results", ROOT / "docs/figures"

MODEL = "acclimate:wrn-26-2-bn-cifar10"
SHIFTS = ("cifar/gaussian_blur:5", "cifar/gaussian_noise:5")  # one of dev, one of test
TEMPERATURES = [float(t) for t in np.geomspace(1e-2, 1e1, 13).round(6)]  # four to a decade
HARD = 0.0  # a teacher's temperature: its limit, the class it thinks likeliest
BATCH, EPOCHS, LR = 200, 2, 1e-3
METHODS = {"pseudo-labels": True, "entropy": False}  # with stop-gradient, and without

IMAGES = 1_000  # of ``start``: for margins and for the linear student
STEPS = 100  # of the linear student, all images in each: as many as the sweep's
FEW, FEW_STEPS = 400, 20  # images and steps of the network
CASES = [  # student's and teacher's temperature, learning rate
    (0.031623, 1.778279, LR),
    (0.031623, 3.162278, LR),
    (0.031623, 5.623413, LR),
    (0.031623, 10.0, LR),
    (0.1, 3.162278, LR * 0.1 / 0.031623),  # the second again, were only lr/τs to matter
]

NOTICED, COLLAPSED = 0.5, 50.0  # points of change that count, and the error that is a collapse
ENDS = (75.0, 5.0)  # of the figures' colours: points worse and better
SLICE = 0.031623  # the student's temperature shown in the table of entropy
COLUMNS = (0.562341, 1.0, 1.778279, 3.162278, 5.623413, 10.0)  # the teacher's

Array = NDArray[np.float64]
Cells = dict[str, dict[str, Any]]


class Place(NamedTuple):
    """A cell of the sweep."""

    shift: str
    method: str
    student: float
    teacher: float

    @property
    def key(self) -> str:
        return f"{self.shift} {self.method} {self.student:g} {self.teacher:g}"

    @classmethod
    def parse(cls, key: str) -> Place:
        shift, method, student, teacher = key.rsplit(" ", 3)
        return cls(shift, method, float(student), float(teacher))

    @property
    def side(self) -> str:
        """On which side of its line the student's temperature is."""
        if self.teacher == HARD:
            return "hard labels"
        bound = self.teacher * bound_on_student(stop_gradient=METHODS[self.method])
        if abs(self.student / bound - 1) < 1e-3:
            return "on it"
        return "below" if self.student < bound else "above"


def sweep(args: argparse.Namespace) -> None:
    """Run what is missing, then print a table per method and shift."""
    if args.workers > 1:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // args.workers))
    cells: Cells = {}
    if args.out.exists():
        stored = json.loads(args.out.read_text(encoding="utf-8"))
        cells = stored["cells"]
        if stored["settings"] != _settings(args.images):
            raise SystemExit(f"{args.out} holds cells of other settings; choose another --out")
    temperatures = TEMPERATURES[:: args.every]
    missing = [
        place
        for shift in SHIFTS
        for method in METHODS
        for student in temperatures
        for teacher in _teachers(method, temperatures)
        if (place := Place(shift, method, student, teacher)).key not in cells
    ]
    began = time.perf_counter()
    for place, cell in _run(missing, args.root, args.images, workers=args.workers):
        cells[place.key] = cell
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


def _run(
    missing: list[Place], root: Path, images: int, *, workers: int
) -> Iterator[tuple[Place, dict[str, Any]]]:
    if workers <= 1:
        _load(root, images)
        yield from map(_cell, missing)
        return
    with get_context("spawn").Pool(workers, _load, (root, images)) as pool:
        yield from pool.imap_unordered(_cell, missing)


_HELD: dict[str, Any] = {}


def _load(root: Path, images: int) -> None:
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


def _cell(place: Place) -> tuple[Place, dict[str, Any]]:
    inputs, labels = _HELD[place.shift], _HELD["labels"]
    learner = _learner(place.student, place.teacher, stop_gradient=METHODS[place.method])
    before = _error(_predict(learner, inputs), labels)
    order = torch.Generator().manual_seed(0)
    errors = []
    for _ in range(EPOCHS):
        _epoch(learner, inputs, order)
        errors.append(_error(_predict(learner, inputs), labels))
    source = _source_error(place.shift)
    return place, {"source": source, "batch_norm": before, "after_epoch": errors}


def _learner(
    student: float = 1.0, teacher: float = 1.0, *, stop_gradient: bool = False, lr: float = LR
) -> Learner:
    recipe = get_recipe(
        "soft",
        {
            "teacher": "instant",
            "objective.student_temperature": student,
            "objective.teacher_temperature": teacher,
            "objective.stop_gradient": stop_gradient,
            "optimizer.lr": lr,
            "batch_size": BATCH,
        },
    )
    return Learner(copy_model(_HELD["model"]), recipe, batch_size=BATCH)


def _epoch(learner: Learner, inputs: Tensor, order: torch.Generator) -> None:
    learner.start_epoch()
    for chosen in torch.randperm(len(inputs), generator=order).split(BATCH):
        learner.step(inputs[chosen.to(inputs.device)])


@torch.no_grad()
def _predict(learner: Learner, inputs: Tensor) -> Tensor:
    return torch.cat([learner.predict(part) for part in inputs.split(BATCH)])


def _error(logits: Tensor, labels: Tensor) -> float:
    return _percent(float((logits.argmax(dim=1) != labels).double().mean()))


def _percent(share: float) -> float:
    return round(100 * float(share), 3)


@torch.no_grad()
def _source_error(shift: str) -> float:
    key = f"source {shift}"
    if key not in _HELD:
        logits = [_HELD["model"](part) for part in _HELD[shift].split(1000)]
        _HELD[key] = _error(torch.cat(logits), _HELD["labels"])
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


def _write(path: Path, cells: Cells, images: int) -> None:
    text = json.dumps(
        {"settings": _settings(images), "cells": dict(sorted(cells.items()))}, indent=0
    )
    path.with_suffix(".partial").write_text(text + "\n", encoding="utf-8")
    path.with_suffix(".partial").replace(path)


def _print(cells: Cells, shift: str, method: str, temperatures: list[float]) -> None:
    some = cells[Place(shift, method, temperatures[0], temperatures[0]).key]
    print(
        f"\n{shift}, {method}: error after {EPOCHS} epochs less that with new statistics alone "
        f"({some['batch_norm']:.1f} %; source {some['source']:.1f} %); "
        "rows: student's temperature, columns: teacher's"
    )
    teachers = _teachers(method, temperatures)
    print("        " + "".join(f"{teacher:8.3g}" for teacher in teachers))
    for student in reversed(temperatures):
        row = [cells[Place(shift, method, student, teacher).key] for teacher in teachers]
        gains = [each["after_epoch"][-1] - each["batch_norm"] for each in row]
        print(f"{student:8.3g}" + "".join(f"{gain:+8.1f}" for gain in gains))


def start(args: argparse.Namespace) -> None:
    """Measure where the sweep starts, write, print."""
    _load(args.root, IMAGES)
    found: dict[str, Any] = {
        "settings": {"images": IMAGES, "steps": STEPS, "lr": LR, "torch": torch.__version__},
        "shifts": {},
        "linear": {"cells": {}},
        "network": [],
    }
    for shift in SHIFTS:
        points, weights = _last_layer(shift)
        found["shifts"][shift] = _facts(weights @ points.T)
        found["linear"]["cells"].update(_linear(shift, points, weights))
        for student, teacher, lr in CASES:
            found["network"].append({"shift": shift, **_network(shift, student, teacher, lr)})
            print(json.dumps(found["network"][-1]), flush=True)
    args.out.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


def _last_layer(shift: str) -> tuple[Array, Array]:
    """What the last layer is given, with a 1 for its bias, and its weights."""
    learner = _learner()
    last = [part for part in learner.model.modules() if isinstance(part, nn.Linear)][-1]
    seen: list[Tensor] = []
    hook = last.register_forward_hook(lambda _, given, __: seen.append(given[0].detach()))
    _predict(learner, _HELD[shift])
    hook.remove()
    features = torch.cat(seen).double().cpu().numpy()
    points = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    weight, bias = (p.detach().double().cpu().numpy() for p in (last.weight, last.bias))
    return points, np.concatenate([weight, bias[:, None]], axis=1)


def _outward(logits: Array, student: float, teacher: float) -> Array:
    """By image: how fast the loss falls as its logits (C, N) are scaled up."""
    pull = slope(logits, np.array(1 / student), np.array(1 / teacher), stop_gradient=False)
    return np.asarray((logits * pull).sum(axis=0))


def _facts(logits: Array) -> dict[str, Any]:
    top = np.sort(logits, axis=0)
    margins = {
        "to the next": top[-1] - top[-2],
        "to the mean of the others": top[-1] - top[:-1].mean(axis=0),
    }
    students = TEMPERATURES
    flat = [
        brentq(lambda t, s=s: float(_outward(logits, s, t).mean()), max(s, 1.0), 4 * s + 20)
        for s in students
    ]
    inwards = [float((_outward(logits, students[0], t) < 0).mean()) for t in students]
    return {
        "margins": {
            name: [round(float(v), 2) for v in np.percentile(each, [10, 50, 90])]
            for name, each in margins.items()
        },
        "flat at tau_t": {f"{s:g}": round(t, 3) for s, t in zip(students, flat, strict=True)},
        "share pulled inwards, smallest tau_s": {
            f"{t:g}": round(share, 3) for t, share in zip(students, inwards, strict=True)
        },
    }


def _linear(shift: str, points: Array, weights: Array) -> dict[str, Any]:
    labels = _HELD["labels"].cpu().numpy()
    grid = np.array(TEMPERATURES)
    before = _percent(np.mean((weights @ points.T).argmax(axis=0) != labels))
    cells = {}
    for method, stop_gradient in METHODS.items():
        for teacher in grid:
            run = simulate_points(
                points,
                weights,
                grid,
                teacher,
                stop_gradient=stop_gradient,
                lr=LR,
                momentum=0.9,
                steps=STEPS,
            )
            errors = (run.final.argmax(axis=-2) != labels).mean(axis=-1)
            sizes = _size(run.final) / _size(run.start)
            for student, error, size in zip(grid, errors, sizes, strict=True):
                cells[Place(shift, method, student, teacher).key] = {
                    "batch_norm": before,
                    "after_epoch": [_percent(error)],
                    "size": round(float(size), 3),
                }
    return cells


def _network(shift: str, student: float, teacher: float, lr: float) -> dict[str, Any]:
    inputs, labels = _HELD[shift][:FEW], _HELD["labels"][:FEW]
    learner = _learner(student, teacher, lr=lr)
    order = torch.Generator().manual_seed(0)
    before = _predict(learner, inputs)
    for _ in range(FEW_STEPS * BATCH // FEW):
        _epoch(learner, inputs, order)
    logits = [z.double() for z in (before, _predict(learner, inputs))]
    sizes = [float(_size(z.T.cpu().numpy())) for z in logits]
    predicted = logits[1].argmax(dim=1)
    return {
        "student": student,
        "teacher": teacher,
        "lr": round(lr, 6),
        "errors": [_error(z, labels) for z in logits],
        "size": round(sizes[1] / sizes[0], 3),
        "most used class": _percent(float(predicted.bincount().max()) / FEW),
    }


def _size(logits: Array) -> Array:
    centred = logits - logits.mean(axis=-2, keepdims=True)
    return np.asarray(np.abs(centred).mean(axis=(-2, -1)))


def report(_: argparse.Namespace) -> None:
    """Write the figures, print the tables."""
    FIGURES.mkdir(exist_ok=True)
    for name, drawn in figures().items():
        (FIGURES / name).write_text(drawn, encoding="utf-8")
    print("\n\n".join(table() for table in TABLES))


def _stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return found


def figures() -> dict[str, str]:
    """By name: the network, and the linear student that starts from its outputs."""
    network, linear = _stored("temperatures.json"), _stored("temperatures_start.json")["linear"]
    runs = {
        "temperatures.svg": ("network", network),
        "temperatures-linear.svg": ("linear student", linear),
    }
    return {
        name: svg(real_network_figure(run, baseline="batch_norm", who=who, ends=ENDS))
        for name, (who, run) in runs.items()
    }


def _change(cell: dict[str, Any]) -> float:
    """Error at the end less that of new batch statistics alone."""
    return float(cell["after_epoch"][-1] - cell["batch_norm"])


def sides_table() -> str:
    """What became of the cells on each side of their line."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for key, cell in _stored("temperatures.json")["cells"].items():
        place = Place.parse(key)
        groups.setdefault((place.shift, place.method, place.side), []).append(cell)
    methods, order = list(METHODS), ["above", "hard labels", "on it", "below"]
    rows = []
    for shift, method, side in sorted(
        groups, key=lambda group: (group[0], methods.index(group[1]), order.index(group[2]))
    ):
        found = groups[shift, method, side]
        changes = [_change(cell) for cell in found]
        counts = [
            len(found),
            sum(change > NOTICED for change in changes),
            sum(cell["after_epoch"][-1] > COLLAPSED for cell in found),
            sum(change < -NOTICED for change in changes),
        ]
        ends = [_signed(max(changes)), _signed(min(changes))]
        rows.append([_short(shift), method, side, *map(str, counts), *ends])
    header = [
        "shift", "method", "side of its line", "cells", "worse", "collapsed", "better", "worst",
        "best",
    ]  # fmt: skip
    return Table(rows, header).markdown()


def start_table() -> str:
    """Entropy at one of the student's temperatures: the network, and the theory from its start."""
    network, found = _stored("temperatures.json")["cells"], _stored("temperatures_start.json")
    linear = found["linear"]["cells"]
    lines = []
    for shift, facts in found["shifts"].items():
        keys = [Place(shift, "entropy", SLICE, teacher).key for teacher in COLUMNS]
        inwards = facts["share pulled inwards, smallest tau_s"]
        rows = {
            "network: error": [_signed(_change(network[key])) for key in keys],
            "linear student: error": [_signed(_change(linear[key])) for key in keys],
            "its outputs' size": [f"× {linear[key]['size']:.2f}" for key in keys],
            "images pulled inwards": [f"{100 * inwards[f'{t:g}']:.0f} %" for t in COLUMNS],
        }
        lines += [[f"{_short(shift)}, {what}", *row] for what, row in rows.items()]
    first, *others = (f"{t:.2g}" for t in COLUMNS)
    return Table(lines, [f"τs = {SLICE:.2g}", f"τt = {first}", *others]).markdown()


def agreement_table() -> str:
    """Cells in which a prediction (worse or not) is what the network did."""
    network, found = _stored("temperatures.json")["cells"], _stored("temperatures_start.json")
    lines = []
    for shift, facts in found["shifts"].items():
        for method, stop_gradient in METHODS.items():
            right = []
            for key, cell in found["linear"]["cells"].items():
                place = Place.parse(key)
                if (place.shift, place.method) != (shift, method):
                    continue
                line = place.side == "below"
                flat = facts["flat at tau_t"][f"{place.student:g}"]
                scale = line if stop_gradient else place.teacher > flat
                worse = _change(network[key]) > NOTICED
                predicted = (line, scale, _change(cell) > NOTICED)
                right.append([each == worse for each in predicted])
            counts = (len(right), *(sum(column) for column in zip(*right, strict=True)))
            lines.append([_short(shift), method, *map(str, counts)])
    header = ["shift", "method", "cells", "the line", "one scale", "linear student"]
    return Table(lines, header).markdown()


TABLES = (sides_table, start_table, agreement_table)


def _short(shift: str) -> str:
    return shift.removeprefix("cifar/gaussian_").removesuffix(":5")


def _signed(change: float) -> str:
    return f"{change:+.1f}" if abs(change) >= 0.05 else "0.0"


def main() -> None:
    """Sweep, start or report."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    for call in (sweep, start):
        command = commands.add_parser(call.__name__)
        command.set_defaults(call=call)
        command.add_argument("--root", type=Path, required=True, help="folder of cifar10-test.npz")
        command.add_argument("--out", type=Path, required=True, help="a JSON file")
        if call is sweep:
            command.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
            command.add_argument("--images", type=int, default=10_000, help="default: %(default)s")
            command.add_argument("--every", type=int, default=1, help="every n-th temperature only")
    commands.add_parser("report").set_defaults(call=report)
    args = parser.parse_args()
    args.call(args)


if __name__ == "__main__":
    main()
