"""One adaptation step beside a plain PyTorch loop: images per second, memory, ratios.

    python benchmarks/step.py [--short] [--json] [--device cuda] [--models wrn-40-2 resnet50 ...]

"eager" is the reference: the same step (scale and shift of the norm layers, SGD with momentum) in
plain PyTorch, written below. The others run the same model through acclimate; "inference" is a
forward pass alone. All take turns in one run, and the table has medians. Memory is the peak that
tensors hold in a step, over what they hold before it.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.acceleration import choose
from acclimate.learner import Learner
from acclimate.models import load
from acclimate.recipes import get_recipe
from acclimate.words import Speed

Step = Callable[[Tensor], Tensor]
RECIPE = "rpl"


@dataclass(frozen=True)
class Case:
    """A model at the size and batch it is measured at; which of its weights learn."""

    spec: str
    size: int
    batch: int
    selector: str = "affine"


CASES = {
    "wrn-40-2": Case("acclimate:wrn-40-2", 32, 200),
    "wrn-28-10": Case("acclimate:wrn-28-10", 32, 200),
    "resnet50": Case("torchvision:resnet50", 224, 128),
    "densenet161": Case("torchvision:densenet161", 224, 64),
    "resnext101": Case("torchvision:resnext101_32x8d", 224, 64),
    "efficientnet-b0": Case("torchvision:efficientnet_b0", 224, 128),
    "vit-s16": Case("timm:vit_small_patch16_224", 224, 128, "all"),
}
ON_CPU = ("wrn-40-2",)
ON_GPU = ("resnet50", "wrn-28-10", "densenet161", "resnext101", "efficientnet-b0")


def eager_step(model: nn.Module, case: Case) -> Step:
    """The reference: what one would write by hand for robust pseudo-labels."""
    model.eval().requires_grad_(case.selector == "all")
    learning: list[Tensor] = list(model.parameters()) if case.selector == "all" else []
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
            if case.selector == "affine":
                learning += [module.weight.requires_grad_(True), module.bias.requires_grad_(True)]
    optimizer = torch.optim.SGD(learning, lr=1e-3, momentum=0.9)

    def step(images: Tensor) -> Tensor:
        logits = model(images)
        label = logits.detach().argmax(dim=1, keepdim=True)
        log_p = F.log_softmax(logits, dim=1).gather(1, label)
        loss = ((1 - log_p.exp() ** 0.8) / 0.8).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        answer: Tensor = logits.detach()
        return answer

    return step


def our_step(model: nn.Module, case: Case, images: Tensor, speed: Speed) -> tuple[Step, str]:
    """A step of ours, and how it runs."""
    options = {"optimizer.lr": 1e-3, "selector": case.selector}
    how = choose(model.eval(), images, speed=speed)
    learner = Learner(model, get_recipe(RECIPE, options), acceleration=how)
    return lambda x: learner.step(x).logits, str(how)


def inference(model: nn.Module, images: Tensor, speed: Speed) -> tuple[Step, str]:
    """A forward pass alone."""
    how = choose(model.eval(), images, speed=speed)
    how.prepare(model)

    @torch.no_grad()
    def step(x: Tensor) -> Tensor:
        with how.precision(x.device):
            answer: Tensor = model(how.shown(x))
        return answer

    return step, str(how)


def sides(case: Case, device: str, batch: int) -> tuple[dict[str, tuple[Step, str]], Tensor]:
    """All that is compared, each with a model of its own."""
    images = torch.randn(batch, 3, case.size, case.size, device=device)

    def fresh() -> nn.Module:
        torch.manual_seed(0)
        return load(case.spec).model.to(device).eval()

    def warm(made: tuple[Step, str]) -> tuple[Step, str]:
        for _ in range(2):
            made[0](images)
        return made

    return {
        "eager": warm((eager_step(fresh(), case), "float32")),
        "exact": warm(our_step(fresh(), case, images, "exact")),
        "auto": warm(our_step(fresh(), case, images, "auto")),
        "inference": warm(inference(fresh(), images, "exact")),
        "inference, auto": warm(inference(fresh(), images, "auto")),
    }, images


def timed(step: Step, images: Tensor) -> float:
    began = time.perf_counter()
    step(images)
    if images.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def peak_mebibytes(step: Step, images: Tensor) -> float:
    """The most memory that tensors hold at once during a step, over what they hold before it."""
    if images.is_cuda:
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        step(images)
        return (torch.cuda.max_memory_allocated() - held) / 2**20
    with torch.profiler.profile(profile_memory=True) as profile:
        step(images)
    assert profile.profiler is not None
    events = profile.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return most / 2**20


def measure(name: str, device: str, *, rounds: int, batch: int | None) -> list[dict[str, Any]]:
    """The rows of one model."""
    case = CASES[name]
    compared, images = sides(case, device, batch or case.batch)
    seconds: dict[str, list[float]] = {which: [] for which in compared}
    for number in range(rounds):
        # Whoever goes second finds a warmer cache: take turns.
        for which in sorted(compared, reverse=bool(number % 2)):
            seconds[which].append(timed(compared[which][0], images))
    rates = {which: len(images) / statistics.median(values) for which, values in seconds.items()}
    return [
        {
            "model": name,
            "size": case.size,
            "batch": len(images),
            "learns": case.selector,
            "what": which,
            "how": how,
            "images_per_second": round(rates[which], 1),
            "ratio_to_eager": round(rates[which] / rates["eager"], 3),
            "mebibytes": round(peak_mebibytes(step, images), 1),
        }
        for which, (step, how) in compared.items()
    ]


def main() -> None:
    """Measure, and print one table or one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", choices=CASES, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--short", action="store_true", help="few rounds of small batches")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names = args.models or (ON_GPU if args.device.startswith("cuda") else ON_CPU)
    rounds, batch = (4, 64) if args.short else (args.rounds, None)
    rows: list[dict[str, Any]] = []
    for name in names:
        rows += measure(name, args.device, rounds=rounds, batch=batch)
    cuda = args.device.startswith("cuda")
    machine = torch.cuda.get_device_name() if cuda else platform.processor() or "cpu"
    result = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{machine}, {torch.get_num_threads()} threads, torch {torch.__version__}",
        "step": f"{RECIPE}, SGD with momentum, median of {rounds}",
        "rows": rows,
    }
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print(f"{result['step']}; {result['machine']}")
    print(f"{'model':17}{'batch':>6}  {'what':17}{'how':26}{'images/s':>9}{'ratio':>7}{'MiB':>8}")
    for row in rows:
        print(
            f"{row['model']:17}{row['batch']:6}  {row['what']:17}{row['how']:26}"
            f"{row['images_per_second']:9.0f}{row['ratio_to_eager']:7.2f}{row['mebibytes']:8.0f}"
        )


if __name__ == "__main__":
    main()
