"""Tiny data sets, and results made up for jobs, so that nothing has to be run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.bench import Job, Result
from acclimate.paper import find_tables
from acclimate.paper.tables import Cell

SEVERITY_STEP = 2.0


def tiny_npz(path: Path, *, count: int = 40, side: int = 32, channels: int = 3) -> Path:
    """Noise with labels, in the .npz form of the array sets."""
    rng = np.random.default_rng(0)
    shape = (count, side, side, channels) if channels > 1 else (count, side, side)
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, images=images, labels=np.arange(count) % 10)
    return path.parent


def cell_of(table: str, row: str, column: str) -> Cell:
    cells = find_tables(table)[0].cells
    return next(cell for cell in cells if (cell.row, cell.column) == (row, column))


def made_up(job: Job, *, error: float = 20.0, **record: Any) -> Result:
    """Errors grow with severity and fall with every epoch."""
    value = error + SEVERITY_STEP * ((job.severity or 3) - 3) + job.seed
    epochs = int(dict(job.options).get("epochs") or 1)
    after = [value + epochs - number for number in range(1, epochs + 1)]
    errors = {"unadapted": 30.0, "online": value + 1, "after_epoch": after, "final": value}
    base = {"errors": errors, "labelled": 100, "images": 100, "seconds": 2.0, "ece": 0.1}
    return Result(job=job, record={**base, **record})


def by_key(results: Iterable[Result]) -> dict[str, Result]:
    return {result.key: result for result in results}
