"""One thread a process: small nets, and two test workers on two cores would only wait in line."""

from __future__ import annotations

import os
from pathlib import Path

# For the processes that tests start, in whatever folder.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")

import torch

torch.set_num_threads(1)
