"""NOTE (Gong et al. 2022, "Robust Continual Test-time Adaptation Against Temporal Correlation").

Instance-aware batch norm takes its statistics from what is known of the target, and corrects them
only where a single image with L positions a channel differs by more than chance would have it:

    μ_x = μ + ψ(μ̃_x − μ; k √(σ²/L)),    σ²_x = σ² + ψ(σ̃²_x − σ²; k σ² √(2/(L−1))),    k = 4,

where μ̃_x and σ̃²_x are the image's own and ψ(d; λ) = sign(d) max(|d| − λ, 0). A memory of 64
images is kept balanced over the predicted classes: while it is full, an image of a class c that is
not among the largest takes the place of one that is; else it takes the place of one of its own
class with probability (how many of c are in memory) / (how many of c have come). From the memory,
by entropy minimisation, scale and shift of the normalisation layers learn, with the memory's own
μ and σ²; predictions use a running estimate of these, moved by 0.01 a step from the source's.

Adam at 1e-4 for batches of 64 is the published setting.

Other than published: the source is any model with batch norm, where the authors train theirs with
instance-aware batch norm from the start (or fine-tune it so, for ImageNet). A step is taken for
each batch that arrives, rather than for each 64 images; the rate is scaled with the batch size, the
0.01 is not. As in the authors' code, variances are the unbiased ones, and eps is added to σ² in the
two bounds too. No plain model normalises like this: ``adapt`` returns the learnt weights and the
running statistics, and takes its predictions from the method itself. Networks without batch norm
are left with the memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate.methods.memory import Kept, Memory, MemoryState, most_frequent
from acclimate.parts.base import PARTS, LearnerLike, option
from acclimate.parts.normalization import Running
from acclimate.parts.objectives import CrossEntropy
from acclimate.parts.optimizers import Adam
from acclimate.parts.statistics import StatisticsControl
from acclimate.recipe import Recipe

__all__ = ["NOTE", "InstanceAware", "PredictionBalancedReservoir", "shrunk"]


def shrunk(values: Tensor, by: Tensor) -> Tensor:
    """Values moved towards zero, and no further than to it.

    >>> shrunk(torch.tensor([-3.0, 0.5, 2.0]), torch.tensor(1.0))
    tensor([-2., 0., 1.])
    """
    return values.sign() * (values.abs() - by).clamp_min(0)


@dataclass
class InstanceAwareControl(StatisticsControl):
    """Batch-norm layers that normalise each image by itself."""

    _strength: float = 4.0

    def moved(
        self, layer: _BatchNorm, x: Tensor, *, name: str, weight: float, update_running: bool
    ) -> Tensor:
        """The input moved so that the layer's own formula yields the corrected statistics."""
        mean, var = self.running[f"{name}.mean"], self.running[f"{name}.var"]
        flat = (x.flatten(2) if x.ndim > 2 else x[:, :, None]).to(mean.dtype)
        if update_running and len(flat) * flat.shape[2] > 1:
            batch_var, batch_mean = torch.var_mean(flat, dim=(0, 2))
            self.running[f"{name}.mean"] = mean.lerp(batch_mean.detach(), weight)
            self.running[f"{name}.var"] = var.lerp(batch_var.detach(), weight)
            mean, var = batch_mean, batch_var
        mean, var = self._corrected(flat, mean[:, None], var[:, None], layer.eps)
        assert layer.running_mean is not None
        assert layer.running_var is not None
        scale = ((layer.running_var[:, None] + layer.eps) / (var + layer.eps)).sqrt()
        moved = flat * scale + (layer.running_mean[:, None] - mean * scale)
        return moved.view_as(x).to(x.dtype)

    def _corrected(self, x: Tensor, mean: Tensor, var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        positions = x.shape[2]
        if positions == 1:  # one value has no statistics of its own
            return mean, var
        own_var, own_mean = torch.var_mean(x, dim=2, keepdim=True)
        chance_mean = ((var + eps) / positions).sqrt()
        chance_var = (var + eps) * math.sqrt(2 / (positions - 1))
        corrected = var + shrunk(own_var - var, self._strength * chance_var)
        return mean + shrunk(own_mean - mean, self._strength * chance_mean), corrected.clamp_min(0)


@PARTS["normalization"].register("instance-aware")
@dataclass(frozen=True, kw_only=True)
class InstanceAware(Running):
    """A running estimate, corrected by ``strength`` deviations for images that differ from it.

    While it learns, the statistics of the current batch stand in for the estimate, and move it.
    """

    exports = False

    momentum: float = 0.01
    strength: float = option(4.0, low=0)

    def prepare(self, learner: LearnerLike) -> InstanceAwareControl:
        running = super().prepare(learner)
        return InstanceAwareControl(running.layers, running.running, _strength=self.strength)

    def settling_passes(self, batches: int) -> int:
        """None: it predicts from the first image on, and the estimate is meant to move slowly."""
        return 0


@PARTS["filter"].register("prediction-balanced-reservoir")
@dataclass(frozen=True, kw_only=True)
class PredictionBalancedReservoir(Memory):
    """Learn from a memory that samples all of the past, of all predicted classes alike."""

    def admit(self, state: MemoryState, kept: list[Kept], new: Kept, *, classes: int) -> None:
        """In place of one of a largest class, or by chance of one of its own."""
        if len(kept) >= self.capacity:
            rivals = most_frequent(kept)
            if any(each.label == new.label for each in rivals):
                rivals = [each for each in rivals if each.label == new.label]
                drawn = float(torch.rand((), generator=state.generator))
                if drawn > len(rivals) / int(state.arrived[new.label]):
                    return
            chosen = int(torch.randint(len(rivals), (), generator=state.generator))
            kept.remove(rivals[chosen])
        kept.append(new)


NOTE = Recipe(
    name="note",
    summary="instance-aware batch norm, a reservoir balanced over predictions (Gong et al. 2022)",
    objective=CrossEntropy(stop_gradient=False),
    normalization=InstanceAware(),
    filter=PredictionBalancedReservoir(),
    optimizer=Adam(lr=1e-4),
    batch_size=64,
)
