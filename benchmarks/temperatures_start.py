"""Why does entropy minimisation not collapse where the proposition says? Look where it starts.

    python benchmarks/temperatures_start.py --root DATA --out FILE
    # FILE: benchmarks/results/temperatures_start.json

Takes the network of ``temperatures.py`` with new batch statistics and nothing learnt, and asks the
theory about the outputs it has there, which are far from zero:

- ``shifts``: margins; the teacher's temperature at which the loss is flat in the logits' common
  scale; the share of images whose own logits are pulled inwards.
- ``linear``: the theory's linear student on the network's last features, from the network's last
  weights, with the sweep's learning rate, momentum and number of steps; cells as the sweep's.
- ``network``: some cells on few images, with the size of the outputs and how many images the most
  used class has.

Minutes on two cores. Written after the sweep, to explain it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor, nn

import temperatures as sweep
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models.device import copy_model
from acclimate.theory.many_points import simulate_points, slope

Array = NDArray[np.float64]
IMAGES = 1_000  # for margins and for the linear student
STEPS = 100  # of the linear student, all images in each: as many as the sweep's
FEW, FEW_STEPS = 400, 20  # images and steps of the network
CASES = [  # student's and teacher's temperature, learning rate
    (0.031623, 1.778279, sweep.LR),
    (0.031623, 3.162278, sweep.LR),
    (0.031623, 5.623413, sweep.LR),
    (0.031623, 10.0, sweep.LR),
    (0.1, 3.162278, sweep.LR * 0.1 / 0.031623),  # the second again, were only lr/τs to matter
]


def main() -> None:
    """Measure, write, print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="where cifar10-test.npz lies")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file to write")
    args = parser.parse_args()
    sweep._start(args.root, IMAGES)
    found: dict[str, Any] = {
        "settings": {"images": IMAGES, "steps": STEPS, "lr": sweep.LR, "torch": torch.__version__},
        "shifts": {},
        "linear": {"cells": {}},
        "network": [],
    }
    for shift in sweep.SHIFTS:
        points, weights = _last_layer(shift)
        found["shifts"][shift] = _start(weights @ points.T)
        found["linear"]["cells"].update(_linear(shift, points, weights))
        for student, teacher, lr in CASES:
            found["network"].append({"shift": shift, **_network(shift, student, teacher, lr)})
            print(json.dumps(found["network"][-1]), flush=True)
    args.out.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


def _learner(student: float = 1.0, teacher: float = 1.0, lr: float = sweep.LR) -> Learner:
    recipe = get_recipe(
        "soft",
        {
            "teacher": "instant",
            "objective.student_temperature": student,
            "objective.teacher_temperature": teacher,
            "objective.stop_gradient": False,
            "optimizer.lr": lr,
            "batch_size": sweep.BATCH,
        },
    )
    return Learner(copy_model(sweep._HELD["model"]), recipe, batch_size=sweep.BATCH)


def _predict(learner: Learner, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([learner.predict(part) for part in inputs.split(sweep.BATCH)]).double()


def _last_layer(shift: str) -> tuple[Array, Array]:
    """What the last layer is given, with a 1 for its bias, and its weights."""
    learner = _learner()
    last = [part for part in learner.model.modules() if isinstance(part, nn.Linear)][-1]
    seen: list[Tensor] = []
    hook = last.register_forward_hook(lambda _, given, __: seen.append(given[0].detach()))
    _predict(learner, sweep._HELD[shift])
    hook.remove()
    features = torch.cat(seen).double().cpu().numpy()
    points = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    weight, bias = (p.detach().double().cpu().numpy() for p in (last.weight, last.bias))
    return points, np.concatenate([weight, bias[:, None]], axis=1)


def _outward(logits: Array, student: float, teacher: float) -> Array:
    """By image: how fast the loss falls as its logits (C, N) are scaled up."""
    pull = slope(logits, np.array(1 / student), np.array(1 / teacher), stop_gradient=False)
    return np.asarray((logits * pull).sum(axis=0))


def _start(logits: Array) -> dict[str, Any]:
    top = np.sort(logits, axis=0)
    margins = {
        "to the next": top[-1] - top[-2],
        "to the mean of the others": top[-1] - top[:-1].mean(axis=0),
    }
    students = sweep.TEMPERATURES
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
    labels = sweep._HELD["labels"].cpu().numpy()
    grid = np.array(sweep.TEMPERATURES)
    before = _percent(np.mean((weights @ points.T).argmax(axis=0) != labels))
    cells = {}
    for method, stop_gradient in sweep.METHODS.items():
        for teacher in grid:
            run = simulate_points(
                points,
                weights,
                grid,
                teacher,
                stop_gradient=stop_gradient,
                lr=sweep.LR,
                momentum=0.9,
                steps=STEPS,
            )
            errors = (run.final.argmax(axis=-2) != labels).mean(axis=-1)
            sizes = _size(run.final) / _size(run.start)
            for student, error, size in zip(grid, errors, sizes, strict=True):
                cells[sweep._key(shift, method, student, teacher)] = {
                    "batch_norm": before,
                    "after_epoch": [_percent(error)],
                    "size": round(float(size), 3),
                }
    return cells


def _network(shift: str, student: float, teacher: float, lr: float) -> dict[str, Any]:
    inputs, labels = sweep._HELD[shift][:FEW], sweep._HELD["labels"][:FEW]
    learner = _learner(student, teacher, lr)
    order = torch.Generator().manual_seed(0)
    before = _predict(learner, inputs)
    for _ in range(FEW_STEPS * sweep.BATCH // FEW):
        learner.start_epoch()
        for chosen in torch.randperm(FEW, generator=order).split(sweep.BATCH):
            learner.step(inputs[chosen.to(inputs.device)])
    logits = [before, _predict(learner, inputs)]
    sizes = [float(_size(z.T.cpu().numpy())) for z in logits]
    answers = logits[1].argmax(dim=1)
    return {
        "student": student,
        "teacher": teacher,
        "lr": round(lr, 6),
        "errors": [_percent(float((z.argmax(dim=1) != labels).double().mean())) for z in logits],
        "size": round(sizes[1] / sizes[0], 3),
        "most used class": _percent(float(answers.bincount().max()) / FEW),
    }


def _size(logits: Array) -> Array:
    centred = logits - logits.mean(axis=-2, keepdims=True)
    return np.asarray(np.abs(centred).mean(axis=(-2, -1)))


def _percent(share: float) -> float:
    return round(100 * float(share), 3)


if __name__ == "__main__":
    main()
