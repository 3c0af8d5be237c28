"""Does the same seed give the same answer on a GPU, and what does it cost to have it so?

    python benchmarks/same_seed.py --root DATA --out benchmarks/results/same_seed.json

DATA holds cifar10-test.npz. cuDNN chooses the kernels of convolutions by trying them (what faster
runs do now), by a rule, or by a rule among those that give the same bits every time. Each way of
choosing runs in processes of its own, twice in each: what is tried there once is known.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import acclimate
from acclimate.acceleration import Acceleration
from acclimate.checkpoint import fingerprint
from acclimate.data import ImageSource
from acclimate.models import LoadedModel
from same_answer import opened
from step import CASES

CHOSEN = {
    "by trying": {"benchmark": True, "deterministic": False},
    "by rule": {"benchmark": False, "deterministic": False},
    "by rule, the same bits": {"benchmark": False, "deterministic": True},
}
PROCESSES, TURNS = 3, 2
LARGE = 40  # batches of the large model


def run(model: str, chosen: str, root: Path, images: int) -> list[dict[str, Any]]:
    """What came of the turns of a process."""
    plain = Acceleration.kernels

    @contextlib.contextmanager
    def kernels(self: Acceleration, device: torch.device) -> Iterator[None]:
        with plain(self, device), torch.backends.cudnn.flags(
            enabled=True, allow_tf32=True, **CHOSEN[chosen]
        ):  # fmt: skip
            yield

    with patch.object(Acceleration, "kernels", kernels):
        return [_turn(model, root, images) for _ in range(TURNS)]


def _turn(name: str, root: Path, images: int) -> dict[str, Any]:
    case = CASES.get(name)
    model: nn.Module | LoadedModel
    pictures: Tensor | ImageSource
    if case is None:
        model, pictures = opened(name, root, images)
        shift: str | None = "cifar/speckle_noise:5"
    else:
        model, shift = case.build(), None
        shape = (min(images, LARGE * case.batch), 3, case.size, case.size)
        pictures = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    began = time.perf_counter()
    found = acclimate.adapt(
        model,
        pictures,
        "rpl",
        options={"optimizer.lr": 0.03, "epochs": 2},
        shift=shift,
        guard="observe",
        score="end",
        progress=False,
    )
    seconds = time.perf_counter() - began
    return {
        "error": found.error_after,
        "seconds": round(seconds, 2),
        "digest": fingerprint(found.model.state_dict()),
        "how": found.record.acceleration,
    }


def main() -> None:
    """All ways of choosing, side by side."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="where cifar10-test.npz lies")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    parser.add_argument("--images", type=int, default=10_000, help="default: %(default)s")
    models = ["acclimate:wrn-26-2-bn-cifar10", "resnet50"]
    parser.add_argument("--models", nargs="+", default=models, metavar="NAME")
    args = parser.parse_args()
    rows = []
    for model in args.models:
        for chosen in CHOSEN:
            turns = []
            for _ in range(PROCESSES):
                context = multiprocessing.get_context("spawn")
                with ProcessPoolExecutor(1, mp_context=context) as pool:
                    turns.append(pool.submit(run, model, chosen, args.root, args.images).result())
            rows.append({"model": model, "kernels": chosen, "processes": turns})
            digests = {turn["digest"] for each in turns for turn in each}
            last = [each[-1] for each in turns]
            fastest = min(turn["seconds"] for turn in last)
            errors = [turn["error"] for turn in last]
            print(model, chosen, f"{len(digests)} answers", f"{fastest} s", errors, flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    result = {"device": device, "torch": torch.__version__, "rows": rows}
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
