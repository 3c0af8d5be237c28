"""Which acceleration is worth it, for this model on this device."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from acclimate.acceleration.remembered import remembered, structure_of
from acclimate.errors import unknown_name
from acclimate.models.outputs import logits_of
from acclimate.text import Speed

__all__ = ["EXACT", "PLAIN", "Acceleration", "check_speed", "choose", "differs", "turns_away"]


@dataclass(frozen=True, kw_only=True)
class Acceleration:
    """What is done to a model's forward pass, and undone when it is returned.

    Attributes:
        channels_last: the channels of a pixel lie next to each other, which most convolutions
            are faster with.
        half: activations in bfloat16; weights, statistics, loss and optimiser stay as they are.
        fused: batch norm with what follows it as one operation, and convolutions that do not learn
            keep no input (a twin of the model, see :mod:`acclimate.acceleration.twin`).
        recorded: on a GPU, a step is captured as a CUDA graph and replayed.
        searches: on a GPU, cuDNN takes the kernels that are fastest at the moment: up to a tenth
            faster, and other bits in every run. Else it takes them by rule, the same each time.
        deterministic: on a GPU, no TensorFloat-32 either.

    >>> fast = Acceleration(channels_last=True, half=True)
    >>> str(fast), str(EXACT), str(PLAIN)
    ('bfloat16, channels last', 'exact', 'plain')
    """

    channels_last: bool = False
    half: bool = False
    fused: bool = False
    recorded: bool = False
    searches: bool = False
    deterministic: bool = False

    def __str__(self) -> str:
        words = {
            "bfloat16": self.half,
            "channels last": self.channels_last,
            "fused": self.fused,
            "recorded": self.recorded,
        }
        done = ", ".join(word for word, is_so in words.items() if is_so)
        return done or ("exact" if self.deterministic else "plain")

    @property
    def changes(self) -> bool:
        """Whether a forward pass is another than the model's own."""
        return self.channels_last or self.half or self.fused

    def candidates(self) -> list[Acceleration]:
        """This one, and what to try instead where it goes wrong, the fastest first.

        The last is the model as torch runs it, which nothing has to be compared with.

        >>> [str(each) for each in Acceleration(channels_last=True, half=True).candidates()]
        ['bfloat16, channels last', 'channels last', 'plain']
        """
        return list(dict.fromkeys([self, replace(self, half=False), PLAIN]))

    def prepare(self, model: nn.Module) -> None:
        """Lay the weights out as the images will be."""
        self._lay_out(model, torch.channels_last)

    def undo(self, model: nn.Module) -> None:
        """Lay the weights out as they were."""
        self._lay_out(model, torch.contiguous_format)

    def _lay_out(self, model: nn.Module, order: torch.memory_format) -> None:
        if self.channels_last:
            for parameter in model.parameters():
                if parameter.ndim == 4:  # model.to(memory_format=...) refuses models with others
                    parameter.data = parameter.data.contiguous(memory_format=order)

    def shown(self, images: Tensor) -> Tensor:
        """The images in the layout the model is given."""
        if self.channels_last and images.ndim == 4:
            return images.contiguous(memory_format=torch.channels_last)
        return images

    def precision(self, device: torch.device) -> contextlib.AbstractContextManager[object]:
        """For a forward pass."""
        return _autocast(device, enabled=self.half)

    @contextlib.contextmanager
    def kernels(self, device: torch.device) -> Iterator[None]:
        """For a whole step, loss and backward pass included: which kernels may be chosen."""
        with _autocast(device, enabled=False):
            if device.type != "cuda" or self == PLAIN:
                yield
                return
            with torch.backends.cudnn.flags(
                enabled=True,
                benchmark=self.searches,
                deterministic=not self.searches,
                allow_tf32=not self.deterministic,
            ):
                yield


def _autocast(device: torch.device, *, enabled: bool) -> contextlib.AbstractContextManager[object]:
    """On or off, whatever autocast a caller has around it; nothing is kept in its cache."""
    if not torch.amp.is_autocast_available(device.type):
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled, cache_enabled=False)


EXACT = Acceleration(deterministic=True)
"""The model unchanged, to the last bit."""

PLAIN = Acceleration()
"""The model as torch runs it by itself: on a GPU, with whatever kernels the user has allowed."""


_WORTH_A_LOOK = 0.05  # seconds of a batch on a CPU: below, there is nothing to be gained
_GAIN = 1.1
_ROUNDS = 2
_WORTH_COMPILING = 300  # steps
_AT_MOST = 32  # images to measure with
_WORTH_MEASURING = 256  # images to learn from: to measure and to check costs about as many


def choose(
    model: nn.Module, images: Tensor, *, speed: Speed, steps: int | None = None
) -> Acceleration:
    """How to run a model on batches like these.

    "exact" changes nothing. On a GPU the rest is known beforehand: bfloat16, channels last, fused
    batch norm and captured steps. Kernels are compiled once per machine, which takes about ten
    seconds: "auto" does not do it for so few ``steps`` that they would not pay. "max" lets cuDNN
    search its kernels, too.
    On a CPU it is measured, since it depends on the processor: "auto" tries channels last, and
    bfloat16 where the processor computes in it; "max" the latter in any case. "auto" leaves it be
    where so few images are to come that this would take longer than it saves.

    What is measured is measured once on a machine, and remembered (``ACCLIMATE_CACHE``): a second
    run does as the first.

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
        fast = Acceleration(
            channels_last=convolves,
            half=half,
            fused=fused,
            recorded=True,
            searches=speed == "max",
        )
        if not (fused and short):
            return fast
        # Kernels may be compiled by the next time: it is to do as this one does.
        return _once(model, images, speed, lambda: replace(fast, fused=_compiled()))
    if images.device.type != "cpu":  # untried
        return EXACT
    short = steps is not None and steps * len(images) < _WORTH_MEASURING
    if speed == "auto" and short:
        return EXACT
    some = images[:_AT_MOST]
    return _once(
        model,
        some,
        speed,
        lambda: _fastest(model, some, convolves=convolves, always_half=speed == "max"),
    )


def _once(
    model: nn.Module, images: Tensor, speed: Speed, choose: Callable[[], Acceleration]
) -> Acceleration:
    """A choice that a clock or the state of the machine decides, taken again where it was made."""
    on_gpu = images.device.type == "cuda"
    depends_on = {
        "model": structure_of(model),
        "images": list(images.shape),
        "speed": speed,
        "device": torch.cuda.get_device_name(images.device) if on_gpu else _processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    chosen = remembered(depends_on, lambda: asdict(choose()))
    known = {each.name for each in fields(Acceleration)}
    return Acceleration(**{name: on for name, on in chosen.items() if name in known})


def _processor() -> str:
    """The processor, by name where the system tells it, and whether it computes in bfloat16."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
        name = name if found is None else found[1]
    return f"{name}, bfloat16" if _computes_in_half() else name


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


_MEAN_LIMIT = 0.2
_ALIGNED = 0.25
_LONGER = 1.25
_CONFIDENT = 0.9
_FLIPPED = 1 / 16
"""What rounding to bfloat16 can do without learning something else. On trained networks and shifted
photos (``benchmarks/precision.py``, 32 images as here) probabilities were up to 0.10 apart and
gradients as far as a cosine of 0.51, no confident prediction flipped, and what was learnt had the
same error to within what another order of the images makes. What is wrong, not rounded, is far
outside of these."""


def differs(fast: Tensor, exact: Tensor) -> str | None:
    """Why the fast logits are not the exact ones up to the precision; None where they are.

    Rounding to eight bits moves probabilities a little everywhere; it flips hardly a confident
    prediction, and it makes no numbers that are not finite.

    >>> logits = torch.tensor([[4.0, 0.0, 0.0]])
    >>> differs(logits + 0.01, logits), differs(-logits, logits) is None
    (None, False)
    """
    if bool(torch.isfinite(exact).all()) and not bool(torch.isfinite(fast).all()):
        return "its predictions are not finite"
    ours, theirs = fast.float().softmax(dim=1), exact.float().softmax(dim=1)
    apart = float((ours - theirs).abs().sum(dim=1).mean() / 2)
    if apart > _MEAN_LIMIT:
        return f"its probabilities are {apart:.1%} apart on average"
    confident = theirs.amax(dim=1) > _CONFIDENT
    turned = int((ours.argmax(dim=1) != theirs.argmax(dim=1))[confident].sum())
    many = turned > max(1, _FLIPPED * int(confident.sum()))
    return f"it flips {turned} confident predictions" if many else None


def turns_away(fast: Tensor, exact: Tensor) -> str | None:
    """Why a fast gradient does not go where the exact one goes; None where it does.

    >>> turns_away(torch.tensor([1.0, 0.1]), torch.tensor([1.0, 0.0])) is None
    True
    >>> turns_away(torch.tensor([0.1, 1.0]), torch.tensor([1.0, 0.0]))
    'its gradient points elsewhere (cosine 0.0995)'
    >>> turns_away(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0]))
    'its gradient is 2 times as long'
    """
    ours, theirs = fast.double(), exact.double()
    if not float(theirs.norm()):
        return None
    longer = float(ours.norm() / theirs.norm())
    if not 1 / _LONGER < longer < _LONGER:
        return f"its gradient is {longer:.3g} times as long"
    cosine = float(ours @ theirs / (ours.norm() * theirs.norm()))
    return None if cosine > _ALIGNED else f"its gradient points elsewhere (cosine {cosine:.3g})"
