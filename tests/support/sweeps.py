"""A small data set, and jobs on it that take a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from acclimate.bench import Job
from acclimate.bench.engines import Engine
from acclimate.data.digits import digits

MODEL, DATASET = "acclimate:digits", "mnist"
# As on a GPU: nothing more can be run there by the process that saw such an error.
UNLUCKY = """
from pathlib import Path
from torch import nn
from acclimate.models import load

class Unlucky(nn.Module):
    def __init__(self, times):
        super().__init__()
        self.net, self.times = load("acclimate:digits").model, times

    def forward(self, images):
        marks = sorted(Path({marks!r}).glob(f"{{self.times}}-*"))
        if len(marks) < self.times:
            Path({marks!r}, f"{{self.times}}-{{len(marks)}}").touch()
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self.net(images)

def once(): return Unlucky(1)
def often(): return Unlucky(9)
"""


def write_digits(folder: Path, count: int = 160) -> dict[str, str]:
    """The held-out digits at MNIST's size; the roots of a sweep over them."""
    images, labels = digits("held-out")
    large = np.kron(images[:count], np.ones((1, 3, 3), np.uint8))
    large = np.pad(large, ((0, 0), (2, 2), (2, 2)))
    np.savez(folder / "mnist-test.npz", images=large, labels=labels[:count])
    return {DATASET: str(folder)}


def a_job(recipe: str = "ent", *, shift: str | None = "cifar/fog:2", **changes: Any) -> Job:
    options = {} if recipe in ("none", "bn") else {"epochs": 2, "optimizer.lr": 0.01}
    options |= changes.pop("options", {})
    values = {"model": MODEL, "dataset": DATASET, "recipe": recipe, "shift": shift}
    return Job.of(**{**values, **changes}, options=options)


def write_unlucky_nets(folder: Path) -> None:
    """A module ``unlucky_net``, whose nets break the device ``once`` and ``often``."""
    (folder / "unlucky_net.py").write_text(UNLUCKY.format(marks=str(folder)))


def check_unlucky_nets(engine: Engine, folder: Path) -> None:
    """An engine that tries twice must get over the first, give up the second, and go on."""
    models, results = ["py:unlucky_net:once", "py:unlucky_net:often", MODEL], []
    engine.run([a_job("none", model=model) for model in models], results.append)
    assert len(results) == 3
    ends = {result.job.model: result for result in results}
    assert [ends[model].status for model in models] == ["done", "failed", "done"]
    assert "CUDA error: an illegal memory access" in ends[models[1]].message
    assert len(list(folder.glob("9-*"))) == 2
