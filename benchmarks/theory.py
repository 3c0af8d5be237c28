"""Does the simulated collapse follow Proposition 1, and where not, why?

python benchmarks/theory.py [--short] [--out benchmarks/results/theory.json]

The settings are those of `acclimate.theory.settings`, fixed before measuring. `--short` takes
temperatures from 0.1 on, on a grid as fine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.theory.boundary import (
    bound_on_student,
    claimed_columns,
    deviation,
    overshoots,
    predicted,
    run_grid,
)
from acclimate.theory.many_points import simulate_points
from acclimate.theory.settings import BOUNDARY, FIGURES, Settings

METHODS = {"pseudo-labels": True, "entropy": False}
SHORT = {"low": 0.1, "count": 125}
"""Half the axis, cells of the same width."""

MANY_TEMPERATURES = np.geomspace(0.3, 3, 12)


def span(mask: NDArray[np.bool_], settings: Settings) -> list[float] | None:
    """Lowest and highest teacher temperature of the longest row of neighbouring columns."""
    at = np.flatnonzero(mask)
    if not len(at):
        return None
    rows = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
    longest = max(rows, key=len)
    return [float(f"{settings.temperatures[i]:.4g}") for i in (longest[0], longest[-1])]


def measure(settings: Settings, *, stop_gradient: bool, q: float = 0.0) -> dict[str, Any]:
    began = time.perf_counter()
    run = run_grid(settings, stop_gradient=stop_gradient, q=q)
    seconds = time.perf_counter() - began
    row: dict[str, Any] = {
        "lowest temperature": settings.low,
        "count": settings.count,
        "lr": settings.lr,
        "momentum": settings.momentum,
        "start": settings.start,
        "alpha": settings.alpha or 1 / settings.lr,
        "q": q,
        "seconds": round(seconds, 2),
        "share collapsed": float(run.collapsed.mean()),
        "share flipped": float(run.flipped.mean()),
    }
    if bound_on_student(stop_gradient=stop_gradient, q=q) == 0:
        return row
    cells = deviation(run.collapsed, settings, stop_gradient=stop_gradient, q=q)
    claimed = claimed_columns(settings, stop_gradient=stop_gradient, q=q)
    flow = predicted(settings, stop_gradient=stop_gradient, q=q)
    differs = flow != run.collapsed
    long = overshoots(settings, stop_gradient=stop_gradient, q=q)
    within = np.abs(cells) <= 1
    t = settings.temperatures
    above = t[:, None] > t * bound_on_student(stop_gradient=stop_gradient, q=q) * (1 + 1e-9)
    row |= {
        "claimed for tau_t": span(claimed, settings),
        "columns claimed": int(claimed.sum()),
        "columns claimed and within one cell": int((claimed & within).sum()),
        "columns claimed and without an edge": int(np.isnan(cells[claimed]).sum()),
        "largest deviation claimed": round(
            float(np.nanmax(np.abs(cells), where=claimed, initial=0)), 3
        ),
        "within one cell for tau_t": span(within, settings),
        "collapsed above the line": int((run.collapsed & above).sum()),
        "flipped above the line": int((run.flipped & above).sum()),
        "share unlike the flow": float(differs.mean()),
        "share of steps too long": float(long.mean()),
        "cells unlike the flow, steps not too long": int((differs & ~long).sum()),
        "deviation by column": [None if np.isnan(c) else round(float(c), 2) for c in cells],
    }
    return row


def many(points: int, classes: int, *, shift: float, stop_gradient: bool, q: float) -> Any:
    """N points, C classes: cells unlike the rule, and how many classes are in use elsewhere."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(points, 4))
    x[:, 0] += shift
    t = MANY_TEMPERATURES
    began = time.perf_counter()
    run = simulate_points(
        x,
        0.1 * rng.normal(size=(classes, 4)),
        t[:, None],
        t,
        stop_gradient=stop_gradient,
        q=q,
        lr=0.1,
        steps=3000,
    )
    line = np.log(t[:, None] / t / max(bound_on_student(stop_gradient=stop_gradient, q=q), 1e-12))
    cell = np.log(t[1] / t[0])
    unlike = run.collapsed != (line < -1e-9)
    others = run.classes[~run.collapsed]
    return {
        "points": points,
        "classes": classes,
        "shared mean": shift,
        "method": "pseudo-labels" if stop_gradient else "entropy",
        "q": q,
        "seconds": round(time.perf_counter() - began, 2),
        "cells": run.collapsed.size,
        "collapsed": int(run.collapsed.sum()),
        "unlike the rule": int(unlike.sum()),
        "unlike the rule, more than one cell away": int(
            (unlike & (np.abs(line) > 1.01 * cell)).sum()
        ),
        "classes in use at the start": len(np.unique(run.start.argmax(axis=0))),
        "share of the others in one class": float((others == 1).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="temperatures from 0.1 on; about two minutes"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/theory.json"))
    args = parser.parse_args()
    began = time.perf_counter()
    grid: dict[str, Any] = SHORT if args.short else {}
    coarse = replace(BOUNDARY, count=20 if args.short else 60, low=0.1)
    result: dict[str, Any] = {
        "cores": os.cpu_count(),
        "settings": asdict(BOUNDARY) | grid,
        "deviations are in": "grid cells, edge of the collapsed region minus line, by column",
        "boundary": {
            name: measure(replace(BOUNDARY, **grid), stop_gradient=sg)
            for name, sg in METHODS.items()
        },
        "figures": {
            figure: {
                name: [measure(replace(s, **grid), stop_gradient=sg) for s in series]
                for name, sg in METHODS.items()
            }
            for figure, series in FIGURES.items()
        },
        "wide cells": {
            name: measure(replace(BOUNDARY, count=60), stop_gradient=sg)
            for name, sg in METHODS.items()
        },
        "coarse settings": asdict(coarse),
        "teacher's rate": [
            measure(replace(coarse, low=1e-2, alpha=alpha), stop_gradient=True)
            for alpha in (0.1, 1.0, 10.0)
        ],
        "robust": {
            name: [measure(coarse, stop_gradient=sg, q=q) for q in (0.3, 0.8, 1.0)]
            for name, sg in METHODS.items()
        },
        "many points": [
            many(points, classes, shift=shift, stop_gradient=sg, q=q)
            for points, classes, shift in ((2, 2, 0.0), (40, 3, 0.0), (40, 10, 0.0), (40, 10, 3.0))
            for sg in METHODS.values()
            for q in (0.0, 0.8)
        ],
    }
    result["seconds"] = round(time.perf_counter() - began, 1)
    text = json.dumps(result, indent=1)
    # Columns of numbers on one line each, so that the file can be read.
    args.out.write_text(_flat(text) + "\n")
    for name, row in result["boundary"].items():
        print(name, {k: v for k, v in row.items() if k != "deviation by column"})


def _flat(text: str) -> str:
    return re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m[0].split()), text)


if __name__ == "__main__":
    main()
