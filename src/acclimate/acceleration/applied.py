"""How a model is run: in which precision, in which order its pictures lie in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

__all__ = ["EXACT", "PLAIN", "Acceleration"]


@dataclass(frozen=True, kw_only=True)
class Acceleration:
    """What is done to a model's forward pass, and undone when it is handed back.

    Attributes:
        channels_last: the channels of a pixel lie next to each other, which most convolutions
            are faster with.
        half: activations in bfloat16; weights, statistics, loss and optimiser stay as they are.
        fused: batch norm with what follows it as one operation, and convolutions that do not learn
            keep no input (a twin of the model, see :mod:`acclimate.acceleration.twin`).
        recorded: on a GPU, a step is recorded and replayed.
        deterministic: on a GPU, the same kernels every time, and no TensorFloat-32.

    >>> fast = Acceleration(channels_last=True, half=True)
    >>> str(fast), str(EXACT), str(PLAIN)
    ('bfloat16, channels last', 'exact', 'plain')
    """

    channels_last: bool = False
    half: bool = False
    fused: bool = False
    recorded: bool = False
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
        """This one, and what to try instead where its rounding is too coarse."""
        finer = replace(self, half=False)
        return [self, finer] if self.half and finer.changes else [self]

    def prepare(self, model: nn.Module) -> None:
        """Lay the weights out as the pictures will be."""
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
        """The pictures as the model is to get them."""
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
            exact = self.deterministic
            if device.type != "cuda" or self == PLAIN:
                yield
                return
            with torch.backends.cudnn.flags(
                enabled=True, benchmark=not exact, deterministic=exact, allow_tf32=not exact
            ):
                yield


def _autocast(device: torch.device, *, enabled: bool) -> contextlib.AbstractContextManager[object]:
    """On or off, whatever autocast a caller has around it; nothing is kept in its cache."""
    if not torch.amp.is_autocast_available(device.type):
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled, cache_enabled=False)


EXACT = Acceleration(deterministic=True)
"""The model as it is, to the last bit."""

PLAIN = Acceleration()
"""The model as torch runs it by itself: on a GPU, with whatever kernels the user has allowed."""
