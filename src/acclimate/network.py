"""A model as the learner asks it: with any weights, and faster where that changes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from acclimate import parallel
from acclimate.acceleration import EXACT, Acceleration, differs
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

    def __init__(self, model: nn.Module, acceleration: Acceleration = EXACT) -> None:
        self.model = model
        self.accelerate(acceleration)

    def accelerate(self, acceleration: Acceleration) -> None:
        """Run the model this way from now on."""
        self.acceleration, self._unverified = acceleration, acceleration.changes
        acceleration.prepare(self.model)

    def decelerate(self) -> None:
        """Run the model as it is."""
        self.acceleration.undo(self.model)
        self.acceleration, self._unverified = EXACT, False

    def ask(
        self,
        images: Tensor,
        statistics: StatisticsControl,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """The logits, by the model's own weights or by others."""
        if self._unverified and len(images):
            self._verify(images, statistics)
        return self._ask(images, statistics, weights)

    def _ask(
        self, images: Tensor, statistics: StatisticsControl, weights: Mapping[str, Tensor] | None
    ) -> Tensor:
        # Few models take no image at all, but this process must be there for the others: it shows
        # one that counts nowhere, neither in the statistics nor in the loss.
        absent = len(images) == 0 and parallel.active()
        statistics.expect_stand_in(absent)
        shown = images.new_zeros(1, *images.shape[1:]) if absent else images
        shown = self.acceleration.shown(shown)
        with self.acceleration.precision(shown.device):
            if weights is None:
                returned = self.model(shown)
            else:
                returned = functional_call(self.model, dict(weights), (shown,))
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
        warnings.warn(
            f"running the model faster ({chosen}) changes its answers by more than rounding does: "
            f"{why}; it runs exactly instead",
            AcclimateWarning,
            stacklevel=2,
        )
