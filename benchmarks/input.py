"""How fast images come to the model, beside a model that is always shown the same ones.

    python benchmarks/input.py [--json] [--images N] [--batch N] [--device cuda]

JPEG files of 500×375 are adapted to, as ``adapt`` does it, for three epochs. The folder is opened
so that it keeps nothing: epoch 1 decodes as it goes and cannot be faster than the decoder, later
epochs find the images on the device. "host" is an epoch of images that were cached in the memory
of the host and are sent with every batch. "synthetic" shows one batch again and again: what the
step alone can do, measured before and after every epoch. Ratios are to the mean of these two, since
other work on the machine comes and goes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from acclimate.acceleration import choose
from acclimate.data import ImageSource, batches, epoch_order, open_images
from acclimate.data.loading import Resident
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models.loading import outline

EPOCHS = 3
WARM_UP = 3


def report(words: str) -> None:
    """How far it has come: whole epochs take a while."""
    print(words, file=sys.stderr, flush=True)


def write_images(folder: Path, count: int) -> None:
    """Smooth random images with some grain, about 50 kB each."""

    def write(number: int) -> None:
        draw = np.random.default_rng(number)
        coarse = Image.fromarray(draw.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), np.int16)
        grainy = smooth + draw.integers(-10, 11, smooth.shape, dtype=np.int16)
        image = Image.fromarray(grainy.clip(0, 255).astype(np.uint8))
        image.save(folder / f"{number:06}.jpg", quality=90)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(write, range(count)))


def fresh(model: nn.Module, device: torch.device) -> nn.Module:
    """An outline filled with random weights: nothing to download."""
    torch.manual_seed(0)
    model = model.to_empty(device=device)
    for module in model.modules():
        if callable(reset := getattr(module, "reset_parameters", None)):
            reset()
    return model.eval()


def measure(folder: Path, *, count: int, batch: int, model: str, device: torch.device) -> Any:
    """Images per second, ratios to the synthetic rate at that time, and how the model ran."""
    outlined = outline(f"torchvision:{model}")
    began = time.perf_counter()
    files = open_images(folder, preprocessing=outlined.preprocessing, cache=0, progress=False)
    rates = {"decoding alone": count / (time.perf_counter() - began)}
    report(f"decoding alone: {rates['decoding alone']:.1f} images/s; the first steps")
    in_memory = open_images(folder, preprocessing=outlined.preprocessing, progress=False)
    shown = next(iter(batches(in_memory, batch_size=batch, device=device))).images
    net = fresh(outlined.model, device)
    how = choose(net, shown, speed="auto")
    learner = Learner(net, get_recipe("rpl"), batch_size=batch, acceleration=how)
    learner.network.unverified = False  # the gradients of random weights are chaos: see step.py
    room = None if device.type == "cuda" else count * shown[0].numel()
    resident = Resident(count, device=device, room=room)

    def rate(images: Iterable[Tensor]) -> float:
        began = time.perf_counter()
        for each in images:
            learner.step(each)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return count / (time.perf_counter() - began)

    def epoch(number: int, source: ImageSource, cached: Resident | None) -> Iterator[Tensor]:
        order = epoch_order(count, seed=0, epoch=number)
        for each in batches(source, batch_size=batch, order=order, device=device, resident=cached):
            yield each.images

    for _ in range(WARM_UP):
        learner.step(shown)
    synthetic = [rate(repeat(shown, count // batch))]
    ratios = {}
    for number in range(EPOCHS + 1):
        last = number == EPOCHS
        title = "host" if last else f"epoch {number + 1}"
        source, cached = (in_memory, None) if last else (files, resident)
        rates[title] = rate(epoch(number, source, cached))
        report(f"{title}: {rates[title]:.1f} images/s")
        synthetic.append(rate(repeat(shown, count // batch)))
        ratios[title] = rates[title] / mean(synthetic[-2:])
    return rates | {"synthetic": mean(synthetic)}, ratios, str(how)


def main() -> None:
    """Measure, and print one table or one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, help="rounded to whole batches")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    device = torch.device(args.device)
    cuda = device.type == "cuda"
    model, batch = ("resnet50", args.batch or 128) if cuda else ("resnet18", args.batch or 16)
    count = max(1, (args.images or (8192 if cuda else 128)) // batch) * batch
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report(f"writing {count} images")
        write_images(folder, count)
        rates, ratios, how = measure(folder, count=count, batch=batch, model=model, device=device)
    machine = torch.cuda.get_device_name(device) if cuda else platform.processor() or "cpu"
    slower = "decoder" if rates["decoding alone"] < rates["synthetic"] else "step"
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{machine}, {os.cpu_count()} cores, torch {torch.__version__}",
        "step": f"rpl, {model}, {count} images in batches of {batch}, {how}",
        "epoch 1 waits for the": slower,
        "images per second": {name: round(rate, 1) for name, rate in rates.items()},
        "ratio to synthetic": {name: round(ratio, 3) for name, ratio in ratios.items()},
    }
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print(f"{result['step']}; {result['machine']}")
    for name, rate in rates.items():
        ratio = f"{ratios[name]:8.3f} of synthetic" if name in ratios else ""
        print(f"{name:15}{rate:10.1f} images/s{ratio}")
    print(f"epoch 1 waits for the {slower}")


if __name__ == "__main__":
    main()
