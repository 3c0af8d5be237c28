"""How the learner runs a model: with any weights, and faster where that changes nothing."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call

from acclimate import parallel
from acclimate.acceleration import (
    EXACT,
    Acceleration,
    GraphedWork,
    GraphMemory,
    bypassed,
    differs,
    interferes,
    make_twin,
    turns_away,
)
from acclimate.errors import AcclimateWarning
from acclimate.models.outputs import logits_of
from acclimate.parts.statistics import StatisticsControl

__all__ = ["Network"]

_KINDS = 8
"""How many kinds of forward passes are captured at one time."""
_VERIFIED_WITH = 32
"""Images on which an acceleration is compared with the exact way."""


class Network:
    """A model, and how it is run.

    An acceleration that changes predictions at all is ``unverified`` until :meth:`verify` has
    compared it with the exact way.

    >>> network = Network(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
    >>> network.logits(torch.rand(5, 3, 2, 2), StatisticsControl({})).shape
    torch.Size([5, 2])
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.acceleration = EXACT
        self.preparation = 0.0  # seconds, of compiling and of checking what is faster
        self.decelerate()

    def accelerate(self, acceleration: Acceleration, *, verified: bool = False) -> None:
        """Run the model this way from now on; what learns must be known by the next pass."""
        ends = self.acceleration.recorded and not acceleration.recorded
        self.acceleration.undo(self.model)
        acceleration.prepare(self.model)
        self.acceleration = acceleration
        self.unverified = acceleration.changes and not verified
        self.forget()
        if ends and torch.cuda.is_initialized():
            # The memory of graphs is used by nothing else, and would be kept run after run.
            torch.cuda.empty_cache()

    def decelerate(self) -> None:
        """Run the model exactly."""
        self.accelerate(EXACT)

    def verify(self, images: Tensor, probe: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        """Run the model as fast as its predictions and gradients allow, compared on a first batch.

        ``probe`` returns both for images. The acceleration that was chosen is tried, then one that
        rounds less; where neither does, the model runs as torch runs it, with a warning.
        """
        chosen = self.acceleration
        some = torch.cat([images, images]) if len(images) == 1 else images[:_VERIFIED_WITH]
        why: str | None = None
        began = time.perf_counter()
        try:
            self.accelerate(EXACT)
            exact = probe(some)
        finally:
            self.accelerate(chosen)
        if not all(bool(torch.isfinite(each).all()) for each in exact):
            return  # nothing can be concluded from broken images: the next batch decides
        *candidates, plain = chosen.candidates()
        for candidate in candidates:
            self.accelerate(candidate, verified=True)
            try:
                fast = probe(some)
                why = differs(fast[0], exact[0]) or turns_away(fast[1], exact[1])
            except Exception as error:  # whatever a compiler or a kernel may meet
                why = f"{type(error).__name__}: {error}".splitlines()[0]
            if why is None:
                break
        self.preparation = time.perf_counter() - began
        if why is None:
            return
        self.accelerate(plain)
        warnings.warn(
            f"running the model faster ({chosen}) changes its predictions by more than rounding "
            f"does: {why}; it runs as PyTorch runs it instead",
            AcclimateWarning,
            stacklevel=2,
        )

    def forget(self) -> None:
        """Drop twin and graphs: the tensors are others now."""
        self._cache = _Cache()

    def follow(self) -> None:
        """Drop twin and graphs if weights that do not learn were changed or replaced.

        A twin has copies of them, and a graph knows where in memory they lie.
        """
        if not (self.acceleration.fused or self.acceleration.recorded):
            return
        if self._cache.frozen is None:
            self._cache.frozen = _frozen(self.model)
        if any(
            held.get(name) is not parameter or parameter._version != version
            for held, name, parameter, version in self._cache.frozen
        ):
            self.forget()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_cache": _Cache()}  # a copy makes its own

    @property
    def memory(self) -> GraphMemory:
        """Where all graphs are captured, and replayed one at a time; another after forgetting."""
        return self._cache.memory

    @property
    def ran(self) -> Acceleration:
        """How the model ran in fact."""
        without = self._cache.looked_for_twin and self._cache.twin is None
        return replace(self.acceleration, fused=self.acceleration.fused and not without)

    def hooked(self, *, except_for: nn.Module | None = None) -> bool:
        """Whether the model has hooks, on other modules, that a replay would not call."""
        modules = self._cache.modules = self._cache.modules or list(self.model.modules())
        return any(interferes(module) for module in modules if module is not except_for)

    def logits(
        self,
        images: Tensor,
        statistics: StatisticsControl,
        weights: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """The logits, by the model's own weights or by others."""
        self.follow()
        if self._replays(images):
            return self._graphed(statistics, weights)(images)[0][0]
        return self._forward(images, statistics, weights)

    def _replays(self, images: Tensor) -> bool:
        """Whether only logits are needed, without gradients, and no hook would miss the call."""
        return (
            self.acceleration.recorded
            and images.is_cuda
            and not torch.is_grad_enabled()
            and not torch.cuda.is_current_stream_capturing()
            and not parallel.active()
            and not self.hooked()
        )

    def _graphed(
        self, statistics: StatisticsControl, weights: Mapping[str, Tensor] | None
    ) -> GraphedWork:
        """The graphed forward pass with these very tensors."""
        # A graph holds on to its statistics and weights: their ids stand for no others.
        others = None if weights is None else tuple(map(id, weights.values()))
        kind = id(statistics), statistics.setting, statistics.gathering, others
        known = self._cache.graphed
        graphed = known.pop(kind, None)
        if graphed is None:
            own = None if weights is None else dict(weights)
            graphed = GraphedWork(
                lambda images: (self._forward(images, statistics, own),), memory=self.memory
            )
        known[kind] = graphed
        if len(known) > _KINDS:  # the least recently used
            del known[next(iter(known))]
        return graphed

    def _forward(
        self, images: Tensor, statistics: StatisticsControl, weights: Mapping[str, Tensor] | None
    ) -> Tensor:
        # Few models take no image at all, but a process must be there for the others: it shows
        # one that counts nowhere, neither in the statistics nor in the loss.
        absent = len(images) == 0
        statistics.expect_stand_in(absent)
        shown = images.new_zeros(1, *images.shape[1:]) if absent else images
        # Copies in half precision live as long as the outermost autocast, and weights have moved.
        torch.clear_autocast_cache()
        runner = self._runner()
        twin = runner is not self.model
        shown = shown if twin else self.acceleration.shown(shown)  # a twin sees to it itself
        device = shown.device
        here = torch.cuda.device(device) if shown.is_cuda else nullcontext()
        with here, self.acceleration.kernels(device), self.acceleration.precision(device):
            if weights is None:
                returned = runner(shown)
            else:
                known = self._cache.names if twin else weights
                own = {name: tensor for name, tensor in weights.items() if name in known}
                returned = functional_call(runner, own, (shown,))
        logits = logits_of(returned)
        if self.acceleration.half:  # losses, and what people see, are made in full precision
            logits = logits.to(images.dtype)
        return logits[:0] if absent else logits

    def _runner(self) -> nn.Module:
        """The twin, or the model where there is none or a hook sits where the twin does not go."""
        if not self.acceleration.fused:
            return self.model
        cache = self._cache
        if not cache.looked_for_twin:
            cache.looked_for_twin = True
            dtype = torch.bfloat16 if self.acceleration.half else torch.float32
            cache.twin = make_twin(self.model, dtype=dtype)
            if cache.twin is not None:
                cache.bypassed = bypassed(self.model, cache.twin)
                shared = cache.twin.named_parameters(remove_duplicate=False)  # by any name
                cache.names = {name for name, _ in shared}
        if cache.twin is None or any(interferes(module) for module in cache.bypassed):
            return self.model
        return cache.twin


_Place: TypeAlias = tuple[dict[str, nn.Parameter | None], str, nn.Parameter, int]
"""Where a parameter is held, by which name, which one it is, and how often it was changed."""


def _frozen(model: nn.Module) -> list[_Place]:
    return [
        (module._parameters, name, parameter, parameter._version)
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None and not parameter.requires_grad and not parameter.is_inference()
    ]


@dataclass
class _Cache:
    """What makes the model faster: built on first use, dropped when tensors are replaced."""

    looked_for_twin: bool = False
    twin: fx.GraphModule | None = None
    bypassed: list[nn.Module] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    modules: list[nn.Module] = field(default_factory=list)
    frozen: list[_Place] | None = None
    graphed: dict[Any, GraphedWork] = field(default_factory=dict)
    memory: GraphMemory = field(default_factory=GraphMemory)
