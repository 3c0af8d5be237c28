"""A side of a comparison of steps: its first steps, its memory, its turns."""

from __future__ import annotations

import contextlib
import copy
import gc
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError, AcclimateWarning
from step_models import Case

__all__ = ["Make", "Side", "Step", "clean", "first_steps", "leaving_out", "reason", "start"]

Step = Callable[[Tensor], Tensor]
Make = Callable[[nn.Module, Case, Tensor], tuple[Step, str]]
"""A step of a model, and in a few words how it runs."""

ROUND = 0.3  # seconds of a side's turn on a GPU
SETTLED = 2  # steps after which the libraries have chosen their kernels
RECORDED = 8  # steps after which a GPU replays recordings


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
    return RECORDED if device.startswith("cuda") else SETTLED


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
            if cuda and number == SETTLED:  # before one is recorded: a replay allocates nothing
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
    """Go on without a side that fails, and write down why."""
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
    """Give back what sides held that are gone."""
    gc.collect()  # a learner and its recordings know each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
