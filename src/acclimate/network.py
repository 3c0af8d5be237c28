"""A model as the learner asks it: with any weights, and faster where that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call

from acclimate import parallel
from acclimate.acceleration import (
    EXACT,
    Acceleration,
    Aside,
    Recorder,
    bypassed,
    interferes,
    make_twin,
)
from acclimate.normalization import StatisticsControl
from acclimate.outputs import logits_of

__all__ = ["Network"]


class Network:
    """A model, and how it is run.

    An acceleration that changes answers at all is ``unverified`` until somebody has compared it
    with the exact way (see :mod:`acclimate.verification`).

    >>> network = Network(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
    >>> network.ask(torch.rand(5, 3, 2, 2), StatisticsControl({})).shape
    torch.Size([5, 2])
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._loading: Any = None
        self.preparation = 0.0  # seconds, of compiling and of checking what is faster
        self.accelerate(EXACT)

    def accelerate(self, acceleration: Acceleration, *, verified: bool = False) -> None:
        """Run the model this way from now on; what learns must be known when it is asked next."""
        self.acceleration = acceleration
        self.unverified = acceleration.changes and not verified
        acceleration.prepare(self.model)
        if acceleration.fused and self._loading is None:  # a twin has copies of frozen weights
            self._loading = self.model.register_load_state_dict_post_hook(self._weights_changed)
        self.forget()

    def decelerate(self) -> None:
        """Run the model as it is."""
        self.acceleration.undo(self.model)
        self.accelerate(EXACT)
        if self._loading is not None:
            self._loading.remove()
            self._loading = None

    def forget(self) -> None:
        """Make and record anew what is faster: the tensors are others now."""
        self._twin: fx.GraphModule | None = None
        self._bypassed: list[nn.Module] = []
        self._has_twin: bool | None = None
        self._modules: list[nn.Module] = []
        self._recorders: dict[Any, Recorder] = {}
        self.aside = Aside()  # where all recordings are made, and replayed one at a time

    def _weights_changed(self, *_: Any) -> None:
        self.forget()

    def __getstate__(self) -> dict[str, Any]:
        # A copy makes its own twin and its own recordings.
        made = ("_twin", "_bypassed", "_has_twin", "_modules", "_recorders", "aside", "_loading")
        return {name: value for name, value in vars(self).items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._loading = None
        self.forget()

    @property
    def ran(self) -> Acceleration:
        """How the model ran in fact."""
        fused = self.acceleration.fused and self._has_twin is not False
        return replace(self.acceleration, fused=fused)

    def looked_into(self, *, but: nn.Module | None = None) -> bool:
        """Whether somebody looks into the model, at other places, who would miss a replay."""
        self._modules = self._modules or list(self.model.modules())
        return any(interferes(module) for module in self._modules if module is not but)

    def ask(
        self,
        images: Tensor,
        statistics: StatisticsControl,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """The logits, by the model's own weights or by others."""
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
            and not self.looked_into()
        )

    def _recorder(self, statistics: StatisticsControl) -> Recorder:
        # A recording holds on to its statistics, so that their number stands for no others.
        kind = id(statistics), statistics.setting, statistics.gathering
        if kind not in self._recorders:
            self._recorders[kind] = Recorder(
                lambda images: (self._ask(images, statistics, None),), aside=self.aside
            )
        return self._recorders[kind]

    def _ask(
        self, images: Tensor, statistics: StatisticsControl, weights: Mapping[str, Tensor] | None
    ) -> Tensor:
        # Few models take no image at all, but this process must be there for the others: it shows
        # one that counts nowhere, neither in the statistics nor in the loss.
        absent = len(images) == 0 and parallel.active()
        statistics.expect_stand_in(absent)
        shown = images.new_zeros(1, *images.shape[1:]) if absent else images
        runner = self._runner()
        shown = shown if runner is self._twin else self.acceleration.shown(shown)
        device = shown.device
        here = torch.cuda.device(device) if shown.is_cuda else nullcontext()
        with here, self.acceleration.kernels(device), self.acceleration.precision(device):
            if weights is None:
                returned = runner(shown)
            else:
                known = dict(runner.named_parameters()) if runner is self._twin else weights
                own = {name: tensor for name, tensor in weights.items() if name in known}
                returned = functional_call(runner, own, (shown,))
        logits = logits_of(returned)
        if self.acceleration.half:  # losses, and what people see, are made in full precision
            logits = logits.to(images.dtype)
        return logits[:0] if absent else logits

    def _runner(self) -> nn.Module:
        """The twin, or the model where there is none or somebody looks where it does not go."""
        if not self.acceleration.fused:
            return self.model
        if self._has_twin is None:
            dtype = torch.bfloat16 if self.acceleration.half else torch.float32
            self._twin = make_twin(self.model, dtype=dtype)
            self._has_twin = self._twin is not None
            self._bypassed = [] if self._twin is None else bypassed(self.model, self._twin)
        if self._twin is None or any(interferes(module) for module in self._bypassed):
            return self.model
        return self._twin
