"""Whether a faster way to run a model gives its answers and its gradients."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate import parallel
from acclimate.acceleration import EXACT, differs, turns_away
from acclimate.errors import AcclimateWarning

if TYPE_CHECKING:
    from acclimate.learner import Learner

__all__ = ["verify"]

_IMAGES = 32


def verify(learner: Learner, images: Tensor) -> None:
    """Run the learner's model as fast as its answers and gradients bear, seen on a first batch.

    What was chosen is tried, then what rounds less; where neither does, the model runs exactly, and
    a warning says so. Nothing is learnt, and no statistics are gathered.
    """
    network = learner.network
    chosen = network.acceleration
    if not network.unverified or not len(images) or parallel.active():
        return
    some = torch.cat([images, images]) if len(images) == 1 else images[:_IMAGES]
    gradients = learner.recipe.learns and (chosen.half or chosen.fused)
    why: str | None = None
    began = time.perf_counter()
    with learner.statistics.unwatched():
        try:
            network.accelerate(EXACT)
            exact = _probe(learner, some, gradients=gradients)
        finally:
            network.accelerate(chosen)
        if not all(bool(torch.isfinite(each).all()) for each in exact):
            return  # nothing can be told from broken images: the next batch will
        for candidate in chosen.candidates():
            network.accelerate(candidate, verified=True)
            try:
                fast = _probe(learner, some, gradients=gradients)
                why = differs(fast[0], exact[0]) or turns_away(fast[1], exact[1])
            except Exception as error:  # whatever a compiler or a kernel may meet
                why = f"{type(error).__name__}: {error}".splitlines()[0]
            if why is None:
                break
    network.preparation = time.perf_counter() - began
    if why is None:
        return
    network.decelerate()
    warnings.warn(
        f"running the model faster ({chosen}) changes its answers by more than rounding does: "
        f"{why}; it runs exactly instead",
        AcclimateWarning,
        stacklevel=2,
    )


def _probe(learner: Learner, images: Tensor, *, gradients: bool) -> tuple[Tensor, Tensor]:
    """The answers, and how all that learns in the model moves them, in one piece.

    Not by the recipe's own loss, which may be at its minimum to begin with, and all noise.
    """
    learning = [p for name, p in learner.learning.items() if ":" not in name]
    learner.recipe.normalization.apply(learner.statistics, len(images), learning=False)
    with torch.set_grad_enabled(gradients and bool(learning)):
        logits = learner.network.ask(images, learner.statistics)
        learner.drop_features()
        if not (gradients and learning):
            return logits, logits.new_zeros(0)
        with learner.network.acceleration.kernels(images.device):
            loss = F.cross_entropy(logits, logits.detach().argmax(dim=1))
            found = torch.autograd.grad(loss, learning, allow_unused=True)
    pieces = [
        torch.zeros_like(parameter) if each is None else each
        for each, parameter in zip(found, learning, strict=True)
    ]
    return logits.detach(), torch.cat([each.flatten().float() for each in pieces])
