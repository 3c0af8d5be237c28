"""Which acceleration is worth it, for this model on this device."""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from acclimate.acceleration.applied import EXACT, Acceleration
from acclimate.errors import unknown_name
from acclimate.outputs import logits_of
from acclimate.words import Speed

__all__ = ["check_speed", "choose"]

_WORTH_A_LOOK = 0.05  # seconds of a batch on a CPU: below, there is nothing to be gained
_GAIN = 1.1
_ROUNDS = 2
_WORTH_COMPILING = 300  # steps
_AT_MOST = 32  # pictures to measure with
_WORTH_MEASURING = 256  # pictures to learn from: to measure and to check costs about as many


def choose(
    model: nn.Module, images: Tensor, *, speed: Speed, steps: int | None = None
) -> Acceleration:
    """How to run a model on batches like these.

    "exact" changes nothing. On a GPU the rest is known beforehand: bfloat16, channels last, fused
    batch norm and recorded steps. Kernels are compiled once per machine, which takes about ten
    seconds: "auto" does not do it for so few ``steps`` that they would not pay.
    On a CPU it is measured, since it hangs on the processor: "auto" tries channels last, and
    bfloat16 where the processor computes in it; "max" the latter in any case. "auto" leaves it be
    where so few images are to come that this would take longer than it saves.

    >>> choose(nn.Flatten(), torch.rand(2, 3, 4, 4), speed="exact") == EXACT
    True
    """
    check_speed(speed)
    if speed == "exact" or not _takes(model, images):
        return EXACT
    convolves = _likes_channels_last(model)
    if images.device.type == "cuda":
        half = torch.cuda.is_bf16_supported()
        short = speed == "auto" and steps is not None and steps < _WORTH_COMPILING
        fused = half and convolves and find_spec("triton") is not None
        fused = fused and (not short or _compiled())
        return Acceleration(channels_last=convolves, half=half, fused=fused, recorded=True)
    if images.device.type != "cpu":  # nobody has tried
        return EXACT
    short = steps is not None and steps * len(images) < _WORTH_MEASURING
    if speed == "auto" and short:
        return EXACT
    return _fastest(model, images[:_AT_MOST], convolves=convolves, always_half=speed == "max")


def check_speed(speed: str) -> None:
    """Refuse a word that is none."""
    if speed not in get_args(Speed):
        raise unknown_name("speed", speed, get_args(Speed))


def _compiled() -> bool:
    """Whether this machine has compiled the kernels before."""
    kept = os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
    return next(Path(kept).glob("*/_input_gradient.cubin"), None) is not None


def _takes(model: nn.Module, images: Tensor) -> bool:
    """Only what is in single precision can do with less."""
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
    return images.ndim == 4 and images.dtype == torch.float32 and kinds <= {torch.float32}


def _likes_channels_last(model: nn.Module) -> bool:
    """Whether there are convolutions to gain by it, and nothing that would come to harm."""
    modules = list(model.modules())
    # The backward pass of torch's group norm on a CPU, channels last, writes to a gradient of the
    # input that is not there when the layers before it are frozen, and takes the process with it.
    grouped = any(isinstance(module, nn.GroupNorm) for module in modules)
    return not grouped and any(isinstance(module, nn.Conv2d) for module in modules)


def _fastest(
    model: nn.Module, images: Tensor, *, convolves: bool, always_half: bool
) -> Acceleration:
    exact = _seconds(model, images, EXACT)
    if exact < _WORTH_A_LOOK:
        return EXACT
    candidates = [Acceleration(channels_last=True)] if convolves else []
    if always_half or _computes_in_half():
        candidates.append(Acceleration(channels_last=convolves, half=True))
    taken = {each: _seconds(model, images, each) for each in candidates}
    best = min(taken, key=lambda each: taken[each], default=EXACT)
    return best if best != EXACT and taken[best] * _GAIN < exact else EXACT


def _computes_in_half() -> bool:
    """Whether the processor has instructions for bfloat16, without which it is slower."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


@torch.no_grad()
def _seconds(model: nn.Module, images: Tensor, acceleration: Acceleration) -> float:
    """The least time of a few forward passes; the model is left as it was."""
    acceleration.prepare(model)
    try:
        shown, taken = acceleration.shown(images), []
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            with acceleration.precision(images.device):
                logits_of(model(shown))
            taken.append(time.perf_counter() - began)
        return min(taken)
    finally:
        acceleration.undo(model)
