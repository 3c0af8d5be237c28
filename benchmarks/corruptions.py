"""Time of each corruption: on one core beside `imagecorruptions`, or on a GPU.

    python benchmarks/corruptions.py [--out results.json]
    python benchmarks/corruptions.py --device cuda [--out results.json]

On the CPU, both make severity 3 of 224 × 224 photos on one core: ours a batch of 32, the reference
one at a time, as it takes them. Runs interleave, and the fastest of each counts. The reference is
imagecorruptions-imaug 1.1.5 (pip install imagecorruptions-imaug==1.1.5), where it is installed. On
a GPU, pictures lie there before and after; images a second in batches, the largest difference from
the CPU's answer, and whether the size of the batch changes anything.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_image

from acclimate.data.corruptions import corrupt, corruptions, frost_kind

SEVERITY = 3
CPU_BATCH = 32
REPEATS = 12


def photos(count: int) -> NDArray[np.uint8]:
    """Different 224 × 224 pieces of a photograph."""
    whole = Image.fromarray(load_sample_image("china.jpg"))
    rng = np.random.default_rng(0)
    pieces = []
    for _ in range(count):
        left, top = int(rng.integers(0, 240)), int(rng.integers(0, 27))
        piece = whole.crop((left, top, left + 400, top + 400))
        pieces.append(np.asarray(piece.resize((224, 224), Image.Resampling.LANCZOS)))
    return np.stack(pieces)


def fastest(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The shortest time of each call in milliseconds; calls take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        call()
    for _ in range(REPEATS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], 1000 * (time.perf_counter() - start))
    return best


def on_one_core() -> dict[str, Any]:
    torch.set_num_threads(1)
    reference = _reference()
    images = photos(CPU_BATCH)
    rows: dict[str, Any] = {}
    for name in corruptions():
        calls: dict[str, Callable[[], object]] = {
            "ours": functools.partial(corrupt, images, name, SEVERITY, preset="imagenet")
        }
        if reference is not None:
            calls["reference"] = functools.partial(
                reference, images[0], corruption_name=name, severity=SEVERITY
            )
        times = fastest(calls)
        row = {"ours_ms": times["ours"] / CPU_BATCH}
        if reference is not None:
            row |= {"reference_ms": times["reference"]}
            row |= {"ratio": times["reference"] / row["ours_ms"]}
        rows[name] = {key: round(value, 3) for key, value in row.items()}
        print(f"{name:20s}", rows[name], flush=True)
    together = {
        key: sum(row[key] for row in rows.values()) for key in rows["fog"] if key != "ratio"
    }
    if reference is not None:
        together["ratio"] = together["reference_ms"] / together["ours_ms"]
    print("together", together)
    return {"corruptions": rows, "together": {k: round(v, 3) for k, v in together.items()}}


def _reference() -> Callable[..., object] | None:
    try:
        import cv2
        from imagecorruptions import corrupt as reference
    except ImportError:
        return None
    cv2.setNumThreads(1)
    call: Callable[..., object] = reference
    return call


def on_gpu(device: str, batch: int) -> dict[str, Any]:
    images = torch.from_numpy(photos(64)).permute(0, 3, 1, 2).contiguous()
    many = images.repeat(-(-batch // 64), 1, 1, 1)[:batch].to(device)
    rows: dict[str, Any] = {}
    for name in corruptions():
        corrupt(many, name, SEVERITY, preset="imagenet")
        torch.cuda.synchronize()
        times = []
        for _ in range(3):
            start = time.perf_counter()
            whole = corrupt(many, name, SEVERITY, preset="imagenet")
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        on_cpu = corrupt(images, name, SEVERITY, preset="imagenet").int()
        apart = (whole[:64].cpu().int() - on_cpu).abs()
        alone = torch.cat([corrupt(many[i : i + 1], name, SEVERITY, preset="imagenet", start=i)
                           for i in range(8)])  # fmt: skip
        rows[name] = {
            "images_per_s": round(batch / min(times)),
            "differing_from_cpu": float((apart > 0).double().mean()),
            "differing_by_more_than_1": float((apart > 1).double().mean()),
            "largest_difference": int(apart.max()),
            "batch_size_matters": not torch.equal(alone, whole[:8]),
        }
        print(f"{name:20s}", rows[name], flush=True)
    return {"corruptions": rows, "batch": batch, "gpu": torch.cuda.get_device_name()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=1024, help="on a GPU: pictures at once")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    measured = on_one_core() if args.device == "cpu" else on_gpu(args.device, args.batch)
    record = {
        "severity": SEVERITY,
        "frost": frost_kind(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        **measured,
    }
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
