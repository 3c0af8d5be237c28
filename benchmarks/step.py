"""One adaptation step beside a plain PyTorch loop: images per second, memory, ratios.

    python benchmarks/step.py [--short] [--json] [--out FILE [--add]] [--device cuda]
                              [--models wrn-40-2 resnet50 ...] [--compiled [resnet50 ...]]

"eager" is the reference: the same step (scale and shift of the norm layers, SGD with momentum) in
plain PyTorch, written below: float32, on a GPU with cuDNN's benchmark and TF32 convolutions.
"exact", "auto" and "max" run the same model through acclimate. "inference" is a forward pass alone:
plain, through acclimate, and (``--compiled``, which takes a minute a model) as torch.compile has it
in bfloat16; "cost" is the time of a step over the time of that.

All sides take turns in one run, and the table has medians. A side's peak is the most that its
tensors hold at once (weights and images too); "step" is that over what is held between two steps.
"start" is the time from a plain model to the end of the first steps (8 on a GPU, where one is
captured; 2 on a CPU): choosing, compiling and capturing. What an earlier side loaded or compiled, a
later one finds.

The weights are random, and the gradients of a random network are chaos: rounding turns them round,
and the check of the first batch would rightly fall back to float32. It is switched off here. This
measures speed; that predictions stay the same is measured by repeatability.py, with trained models.
ViT-S/16 and EfficientNet-L2, which torchvision does not have by name, are put together from its
blocks; their parameter counts are those of the published networks.

The table of steps on a GPU in docs/how-a-step-works.md is made from results/step_gpu.json by
page_tables.py.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import json
import os
import statistics
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.acceleration import choose
from acclimate.errors import AcclimateError, AcclimateWarning
from acclimate.learner.learner import Learner
from acclimate.methods.registry import get_recipe
from acclimate.models import load
from acclimate.models.libraries import import_torchvision
from acclimate.text import Speed

Row = dict[str, Any]
RECIPE = "rpl"
LR = 1e-3
COMPILED = "inference, compiled bf16"


# The models.


@dataclass(frozen=True)
class Case:
    """A model at the size and batch it is measured at; which of its weights learn."""

    make: Callable[[], nn.Module]
    size: int
    batch: int
    selector: str = "affine"

    def build(self) -> nn.Module:
        """The model with weights that are random, but the same every time."""
        torch.manual_seed(0)
        return self.make().eval()


def _own(name: str) -> nn.Module:
    return load(f"acclimate:{name}").model


def _torchvision(name: str) -> nn.Module:
    model: nn.Module = import_torchvision().models.get_model(name, weights=None)
    return model


def _vit_s16() -> nn.Module:
    network: Any = import_torchvision().models.vision_transformer.VisionTransformer
    model: nn.Module = network(
        image_size=224, patch_size=16, num_layers=12, num_heads=6, hidden_dim=384, mlp_dim=1536
    )
    return model


def _efficientnet_l2() -> nn.Module:
    """EfficientNet-B0's stages, 4.3 times as wide and 5.3 times as deep (Xie et al. 2020)."""
    efficientnet: Any = import_torchvision().models.efficientnet
    stage = partial(efficientnet.MBConvConfig, width_mult=4.3, depth_mult=5.3)
    # expansion, kernel, stride, channels in and out, layers
    stages = [
        stage(1, 3, 1, 32, 16, 1),
        stage(6, 3, 2, 16, 24, 2),
        stage(6, 5, 2, 24, 40, 2),
        stage(6, 3, 2, 40, 80, 3),
        stage(6, 5, 1, 80, 112, 3),
        stage(6, 5, 2, 112, 192, 4),
        stage(6, 3, 1, 192, 320, 1),
    ]
    model: nn.Module = efficientnet.EfficientNet(stages, dropout=0.5)
    return model


CASES = {
    "resnet50": Case(partial(_torchvision, "resnet50"), 224, 128),
    "wrn-28-10": Case(partial(_own, "wrn-28-10"), 32, 200),
    "wrn-40-2": Case(partial(_own, "wrn-40-2"), 32, 200),
    "densenet161": Case(partial(_torchvision, "densenet161"), 224, 64),
    "resnext101": Case(partial(_torchvision, "resnext101_32x8d"), 224, 64),
    "efficientnet-b0": Case(partial(_torchvision, "efficientnet_b0"), 224, 128),
    "efficientnet-l2": Case(_efficientnet_l2, 475, 8),
    "vit-s16": Case(_vit_s16, 224, 128, "all"),
}
ON_GPU = tuple(CASES)
ON_CPU = ("wrn-40-2",)


# A side of the comparison: its first steps, its memory, its turns.

Step = Callable[[Tensor], Tensor]
Make = Callable[[nn.Module, Case, Tensor], tuple[Step, str]]
"""A step of a model, and in a few words how it runs."""

ROUND = 0.3  # seconds of a side's turn on a GPU
SETTLED = 2  # steps after which the libraries have chosen their kernels
CAPTURED = 8  # steps after which a GPU replays captured ones


@dataclass
class Side:
    """A step that has settled, and what is known of it."""

    step: Step
    how: str
    start_seconds: float
    peak: float | None
    over_held: float | None
    warned: list[str]
    per_round: int = 1
    seconds: list[float] = field(default_factory=list)

    def turn(self, images: Tensor) -> None:
        """Measure one round."""
        self.seconds.append(timed(self.step, images, steps=self.per_round))


def first_steps(device: str) -> int:
    """How many steps count as the start."""
    return CAPTURED if device.startswith("cuda") else SETTLED


def start(make: Make, model: nn.Module, case: Case, images: Tensor) -> Side:
    """Make a side with a model of its own, and do its first steps."""
    cuda = images.is_cuda
    others = torch.cuda.memory_allocated() - images.nbytes if cuda else 0
    model, held = copy.deepcopy(model), 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", AcclimateWarning)
        began = time.perf_counter()
        step, how = make(model, case, images)
        for number in range(first_steps(images.device.type)):
            if cuda and number == SETTLED:  # before one is captured: a replay allocates nothing
                torch.cuda.reset_peak_memory_stats()
                held = torch.cuda.memory_allocated()
            step(images)
        if cuda:
            torch.cuda.synchronize()
        taken = time.perf_counter() - began
    warned = [str(each.message) for each in caught if issubclass(each.category, AcclimateWarning)]
    if not cuda:
        return Side(step, how, taken, None, peak_on_cpu(step, images), warned)
    peak = torch.cuda.max_memory_allocated()
    side = Side(step, how, taken, (peak - others) / 2**20, (peak - held) / 2**20, warned)
    side.per_round = max(1, min(20, int(ROUND / timed(step, images, steps=2))))
    return side


def peak_on_cpu(step: Step, images: Tensor) -> float:
    """The most MiB that tensors hold at once during a step, over what they hold before it."""
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


def timed(step: Step, images: Tensor, *, steps: int) -> float:
    """Seconds of a step; on a GPU of several in a row, which do not wait for one another."""
    if not images.is_cuda:
        began = time.perf_counter()
        for _ in range(steps):
            step(images)
        return (time.perf_counter() - began) / steps
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    first.record()
    for _ in range(steps):
        step(images)
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1000 / steps


@contextlib.contextmanager
def leaving_out(which: str, skipped: dict[str, str]) -> Iterator[None]:
    """Continue without a side that fails, and store why."""
    try:
        yield
    except Exception as error:  # compilers fail in many ways, and the others are worth measuring
        skipped[which] = reason(error)
        if not isinstance(error, torch.OutOfMemoryError):
            traceback.print_exc()


def reason(error: Exception) -> str:
    """Why something is left out, in a line.

    >>> reason(torch.OutOfMemoryError("tried to allocate")), reason(ValueError("bad\\nvery bad"))
    ('out of memory', 'ValueError: bad')
    """
    if isinstance(error, torch.OutOfMemoryError):
        return "out of memory"
    first = next(iter(str(error).splitlines()), "")
    return first if isinstance(error, AcclimateError) else f"{type(error).__name__}: {first}"


def clean() -> None:
    """Free what sides held that are gone."""
    gc.collect()  # a learner and its captured graphs refer to each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# What is compared.


def eager_step(model: nn.Module, case: Case, _: Tensor) -> tuple[Step, str]:
    """The reference: what one would write by hand for robust pseudo-labels."""
    model.requires_grad_(case.selector == "all")
    learning: list[Tensor] = list(model.parameters()) if case.selector == "all" else []
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
            module.track_running_stats = False
            if case.selector == "affine":
                learning += [module.weight.requires_grad_(True), module.bias.requires_grad_(True)]
    optimizer = torch.optim.SGD(learning, lr=LR, momentum=0.9)

    def step(images: Tensor) -> Tensor:
        logits = model(images)
        label = logits.detach().argmax(dim=1, keepdim=True)
        log_p = F.log_softmax(logits, dim=1).gather(1, label)
        loss = ((1 - log_p.exp() ** 0.8) / 0.8).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        found: Tensor = logits.detach()
        return found

    return step, "float32"


def ours(speed: Speed, recipe: str = RECIPE) -> Make:
    """A step through acclimate."""

    def make(model: nn.Module, case: Case, images: Tensor) -> tuple[Step, str]:
        # The rate holds for batches of this size: nothing is scaled.
        options: dict[str, Any] = {"batch_size": len(images)}
        if recipe != "none":
            options |= {"optimizer.lr": LR, "selector": case.selector}
        how = choose(model, images, speed=speed)
        learner = Learner(model, get_recipe(recipe, options), acceleration=how)
        learner.network.unverified = False
        return lambda x: learner.step(x).logits, str(how)

    return make


def inference(model: nn.Module, _: Case, __: Tensor) -> tuple[Step, str]:
    """A forward pass in plain PyTorch."""

    @torch.no_grad()
    def step(images: Tensor) -> Tensor:
        logits: Tensor = model(images)
        return logits

    return step, "float32"


def compiled_inference(model: nn.Module, _: Case, __: Tensor) -> tuple[Step, str]:
    """The fastest forward pass that plain PyTorch offers."""
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    mode = "reduce-overhead"

    def ordered(x: Tensor) -> Tensor:
        logits: Tensor = model(x.contiguous(memory_format=torch.channels_last))
        return logits

    forward = torch.compile(ordered, mode=mode, dynamic=False)

    @torch.no_grad()
    def step(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return forward(x)

    return step, f"torch.compile, {mode}"


def makers(compiled: bool) -> dict[str, Make]:
    """All that is compared."""
    made: dict[str, Make] = {
        "eager": eager_step,
        "exact": ours("exact"),
        "auto": ours("auto"),
        "max": ours("max"),
        "inference": inference,
        "inference, auto": ours("auto", "none"),
    }
    return made | ({COMPILED: compiled_inference} if compiled else {})


def measure(
    name: str, device: str, *, rounds: int, batch: int | None = None, compiled: bool = False
) -> list[Row]:
    """The rows of one model; what could not be measured has the reason."""
    case = CASES[name]
    shape = batch or case.batch, 3, case.size, case.size
    same = {"model": name, "size": case.size, "batch": shape[0], "learns": case.selector}
    try:
        model = case.build().to(device)
    except (AcclimateError, torch.OutOfMemoryError) as error:
        return [{**same, "what": "all", "skipped": reason(error)}]
    images = torch.randn(shape, device=device)
    made = makers(compiled)
    running: dict[str, Side] = {}
    skipped: dict[str, str] = {}
    for which, make in made.items():
        with leaving_out(which, skipped):
            running[which] = start(make, model, case, images)
        clean()
    for number in range(rounds):
        # Whoever goes second finds a warmer cache: take turns.
        for which in sorted(running, reverse=bool(number % 2)):
            with leaving_out(which, skipped):
                running[which].turn(images)
            if which in skipped:
                del running[which]
                clean()
    rates = {which: shape[0] / statistics.median(s.seconds) for which, s in running.items()}
    return [
        {**same, "what": which}
        | (figures(which, running, rates) if which in running else {"skipped": skipped[which]})
        for which in made
    ]


def figures(which: str, running: dict[str, Side], rates: dict[str, float]) -> Row:
    """What was measured of a side, and its ratios to others."""
    side, rate = running[which], rates[which]
    row: Row = {
        "how": side.how,
        "images_per_second": round(rate, 1),
        "ratio_to_eager": round(rate / rates["eager"], 3) if "eager" in rates else None,
        "peak_mebibytes": None if side.peak is None else round(side.peak, 1),
        "step_mebibytes": None if side.over_held is None else round(side.over_held, 1),
        "start_seconds": round(side.start_seconds, 2),
    }
    if COMPILED in rates and "inference" not in which:
        row["cost_in_compiled_inference"] = round(rates[COMPILED] / rate, 3)
    return row | ({"warned": side.warned} if side.warned else {})


HEADER = (
    f"{'model':16}{'batch':>6}  {'what':25}{'images/s':>9}{'ratio':>7}{'cost':>6}"
    f"{'peak MiB':>10}{'step MiB':>10}{'start s':>9}  how"
)


def line(row: Row) -> str:
    """A row of the table."""
    begin = f"{row['model']:16}{row['batch']:6}  {row['what']:25}"
    if "skipped" in row:
        return f"{begin}  left out: {row['skipped']}"

    def cell(key: str, width: int, digits: int) -> str:
        return "–".rjust(width) if row.get(key) is None else f"{row[key]:{width}.{digits}f}"

    slow = row["images_per_second"] < 100

    numbers = (
        cell("images_per_second", 9, 1 if slow else 0)
        + cell("ratio_to_eager", 7, 2)
        + cell("cost_in_compiled_inference", 6, 2)
        + cell("peak_mebibytes", 10, 0)
        + cell("step_mebibytes", 10, 0)
        + cell("start_seconds", 9, 1)
    )
    warned = "".join(f"\n    warned: {each}" for each in row.get("warned", []))
    return f"{begin}{numbers}  {row['how']}{warned}"


def machine(device: str) -> str:
    """What it ran on, in words."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    half = any(known.get(name) for name in ("avx512_bf16", "amx_bf16"))
    return f"{os.cpu_count()}-core CPU {'with' if half else 'without'} bfloat16 instructions"


def stored_rows(file: Path | None, result: dict[str, Any]) -> list[Row]:
    """The rows of an earlier run, if it ran as this one does."""
    if file is None or not file.exists():
        return []
    before: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    same = ("machine", "torch", "threads", "step")
    other = [f"{name} {before[name]!r}" for name in same if before[name] != result[name]]
    if other:
        raise SystemExit(f"{file} is of another run ({', '.join(other)}): write to another file")
    rows: list[Row] = before["rows"]
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print one table or one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", choices=CASES, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, help="default: each model's own")
    parser.add_argument("--short", action="store_true", help="few rounds of small batches")
    parser.add_argument(
        "--compiled",
        nargs="*",
        choices=CASES,
        metavar="NAME",
        help="compiled inference, too, on a GPU, of these models (none named: of all)",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="a JSON file, written after every model")
    parser.add_argument(
        "--add", action="store_true", help="keep what FILE has of other models on this machine"
    )
    args = parser.parse_args(argv)
    cuda = args.device.startswith("cuda")
    if args.compiled is not None and not cuda:
        parser.error("--compiled is for a GPU; leave it out, or add --device cuda")
    torch.backends.cudnn.benchmark = True  # for the plain sides; ours choose themselves
    rounds, batch = (4, 64) if args.short else (args.rounds, None)
    result: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(args.device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "step": f"{RECIPE}, SGD with momentum, median of {rounds} rounds",
        "first_steps": first_steps(args.device),
        "rows": [],
    }
    asked = args.models or (ON_GPU if cuda else ON_CPU)
    if args.add:
        result["rows"] = stored_rows(args.out, result)
    if not args.json:
        print(f"{result['step']}; {result['machine']}, torch {result['torch']}\n{HEADER}")
    for name in asked:
        compiled = args.compiled is not None and (not args.compiled or name in args.compiled)
        rows = measure(
            name, args.device, rounds=rounds, batch=args.batch or batch, compiled=compiled
        )
        result["rows"] = [row for row in result["rows"] if row["model"] != name] + rows
        if args.out:
            args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        if not args.json:
            print("\n".join(map(line, rows)), flush=True)
        torch.compiler.reset()
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print(f"start: making a side and its first {result['first_steps']} steps")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
