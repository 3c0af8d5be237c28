"""A model as the learner asks it: with any weights, and faster where that changes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call

from acclimate import parallel
from acclimate.acceleration import EXACT, Acceleration, Recorder, differs, interferes, make_twin
from acclimate.errors import AcclimateWarning
from acclimate.normalization import StatisticsControl
from acclimate.outputs import logits_of

__all__ = ["Network"]


class Network:
    """A model, and how it is run.

    An acceleration that changes answers at all is compared with the exact forward pass on the
    first batch, and given up, with a warning, where they differ by more than rounding.

    >>> network = Network(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
    >>> network.ask(torch.rand(5, 3, 2, 2), StatisticsControl({})).shape
    torch.Size([5, 2])
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._twins: dict[torch.dtype, fx.GraphModule | None] = {}
        self.accelerate(EXACT)

    def accelerate(self, acceleration: Acceleration) -> None:
        """Run the model this way from now on; what learns must be known by now."""
        self.acceleration, self._unverified = acceleration, acceleration.changes
        acceleration.prepare(self.model)
        self._twin = None
        if acceleration.fused:
            dtype = torch.bfloat16 if acceleration.half else torch.float32
            if dtype not in self._twins:
                self._twins[dtype] = make_twin(self.model, dtype=dtype)
            self._twin = self._twins[dtype]
        self._recorders: dict[Any, Recorder] = {}
        self._modules = list(self.model.modules())

    def decelerate(self) -> None:
        """Run the model as it is."""
        self.acceleration.undo(self.model)
        self.accelerate(EXACT)

    def forget(self) -> None:
        """Make and record anew what is faster: the tensors are others now."""
        self._twins.clear()
        self.accelerate(self.acceleration)

    def ask(
        self,
        images: Tensor,
        statistics: StatisticsControl,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """The logits, by the model's own weights or by others."""
        if self._unverified and len(images):
            self._verify(images, statistics)
        if weights is None and self._replays(images):
            return self._recorder(statistics)(images)[0][0]
        return self._ask(images, statistics, weights)

    def _replays(self, images: Tensor) -> bool:
        """Whether it is an answer alone that is asked for, and nobody looks into the model."""
        return (
            self.acceleration.recorded
            and images.is_cuda
            and not torch.is_grad_enabled()
            and not torch.cuda.is_current_stream_capturing()
            and not parallel.active()
            and not any(interferes(module) for module in self._modules)
        )

    def _recorder(self, statistics: StatisticsControl) -> Recorder:
        kind = statistics.setting, statistics.gathering
        if kind not in self._recorders:
            self._recorders[kind] = Recorder(lambda images: (self._ask(images, statistics, None),))
        return self._recorders[kind]

    def _ask(
        self, images: Tensor, statistics: StatisticsControl, weights: Mapping[str, Tensor] | None
    ) -> Tensor:
        # Few models take no image at all, but this process must be there for the others: it shows
        # one that counts nowhere, neither in the statistics nor in the loss.
        absent = len(images) == 0 and parallel.active()
        statistics.expect_stand_in(absent)
        shown = images.new_zeros(1, *images.shape[1:]) if absent else images
        shown = self.acceleration.shown(shown)
        runner = self.model if self._twin is None else self._twin
        with self.acceleration.precision(shown.device):
            if weights is None:
                returned = runner(shown)
            else:
                returned = functional_call(runner, dict(weights), (shown,))
        logits = logits_of(returned)
        if self.acceleration.half:  # losses, and what people see, are made in full precision
            logits = logits.to(images.dtype)
        return logits[:0] if absent else logits

    @torch.no_grad()
    def _verify(self, images: Tensor, statistics: StatisticsControl) -> None:
        chosen, running = self.acceleration, dict(statistics.running)
        fast = self._ask(images, statistics, None)
        self.decelerate()
        why = differs(fast, self._ask(images, statistics, None))
        statistics.running.update(running)  # a comparison moves no estimate
        if why is None:
            self.accelerate(chosen)
            self._unverified = False
            return
        self.warn(chosen, why)

    def warn(self, chosen: Acceleration, why: str | None) -> None:
        """Say that a way to run the model was given up."""
        warnings.warn(
            f"running the model faster ({chosen}) changes its answers by more than rounding does: "
            f"{why}; it runs exactly instead",
            AcclimateWarning,
            stacklevel=2,
        )
