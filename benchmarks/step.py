"""One adaptation step beside a plain PyTorch loop: time, peak memory, and what is copied.

    python benchmarks/step.py [--json] [--device cuda]

Both take the same step (WRN-40-2 at 32 × 32, batches of 128, scale and shift of batch norm, SGD
with momentum). Times interleave the two and take medians; memory is the peak that tensors hold in
a step.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.learner import Learner
from acclimate.models.wide_resnet import WideResNet
from acclimate.recipes import get_recipe

RECIPES = ("ent", "rpl")
KEYS = ("plain_ms", "acclimate_ms", "time_ratio", "plain_mib", "acclimate_mib", "memory_ratio")
Step = Callable[[Tensor], Tensor]


def plain_step(model: nn.Module, recipe: str) -> Step:
    """The reference: what one would write by hand for this recipe."""
    model.eval().requires_grad_(False)
    affine = []
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
            affine += [module.weight.requires_grad_(True), module.bias.requires_grad_(True)]
    optimizer = torch.optim.SGD(affine, lr=1e-3, momentum=0.9)

    def step(images: Tensor) -> Tensor:
        logits = model(images)
        log_p = F.log_softmax(logits, dim=1)
        if recipe == "ent":
            loss = -(log_p.exp() * log_p).sum(dim=1).mean()
        else:
            label = logits.detach().argmax(dim=1, keepdim=True)
            loss = ((1 - log_p.gather(1, label).exp() ** 0.8) / 0.8).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        answer: Tensor = logits.detach()
        return answer

    return step


def our_step(model: nn.Module, recipe: str) -> Step:
    learner = Learner(model, get_recipe(recipe, {"optimizer.lr": 1e-3}))
    return lambda images: learner.step(images).logits


def build(which: str, recipe: str, device: str) -> tuple[Step, Tensor]:
    torch.manual_seed(0)
    make = {"plain": plain_step, "acclimate": our_step}[which]
    images = torch.randn(128, 3, 32, 32, device=device)
    return make(WideResNet(40, 2).to(device), recipe), images


def timed(step: Step, images: Tensor) -> float:
    began = time.perf_counter()
    step(images)
    if images.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def times(recipe: str, device: str, rounds: int) -> dict[str, float]:
    sides = {which: build(which, recipe, device) for which in ("plain", "acclimate")}
    seconds: dict[str, list[float]] = {which: [] for which in sides}
    for number in range(rounds + 2):
        # Whoever goes second finds a warmer cache: take turns.
        for which in sorted(sides, reverse=bool(number % 2)):
            taken = timed(*sides[which])
            if number >= 2:
                seconds[which].append(taken)
    return {which: statistics.median(values) for which, values in seconds.items()}


def peak_mebibytes(which: str, recipe: str, device: str) -> float:
    """The most memory that tensors hold at once during a step, over what they hold before it."""
    step, images = build(which, recipe, device)
    for _ in range(2):  # the optimiser's buffers are made in the first step
        step(images)
    if images.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        step(images)
        return (torch.cuda.max_memory_allocated() - held) / 2**20
    with torch.profiler.profile(profile_memory=True) as profile:
        step(images)
    events = profile.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most / 2**20


def measure(device: str, rounds: int) -> dict[str, Any]:
    rows = []
    for recipe in RECIPES:
        seconds = times(recipe, device, rounds)
        peak = {which: peak_mebibytes(which, recipe, device) for which in seconds}
        rows.append(
            {
                "recipe": recipe,
                "plain_ms": 1e3 * seconds["plain"],
                "acclimate_ms": 1e3 * seconds["acclimate"],
                "time_ratio": seconds["acclimate"] / seconds["plain"],
                "plain_mib": peak["plain"],
                "acclimate_mib": peak["acclimate"],
                "memory_ratio": peak["acclimate"] / peak["plain"],
            }
        )
    machine = torch.cuda.get_device_name() if device != "cpu" else platform.processor() or "cpu"
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{machine}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "step": "WRN-40-2, 32x32, batch 128, norm affines, SGD 0.9",
        "rounds": rounds,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(args.device, args.rounds)
    if args.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['step']}; {result['machine']}; median of {args.rounds}")
    heads = ("plain ms", "ours ms", "ratio", "plain MiB", "ours MiB", "ratio")
    print("recipe  " + "".join(f"{head:>11}" for head in heads))
    for row in result["rows"]:
        numbers = (f"{row[key]:11.{3 if key.endswith('ratio') else 0}f}" for key in KEYS)
        print(f"{row['recipe']:8}" + "".join(numbers))


if __name__ == "__main__":
    main()
