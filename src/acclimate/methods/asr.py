"""ASR, adaptive and selective reset (Lim, Hwang & Lee, ICLR 2026), of ETA's loss.

A model that collapses predicts few classes. Its sign here is the entropy e of softmax(z̄), with z̄
the mean of a batch's logits; φ is the share of the batch's labels that differ from the source's.
After each step, with c = log(C / 2) at first:

    e < c:  back to the source, but for the first r0 - r1 (c - e) of the parameters, from input to
            output; c is log(C / 2) again, and optimiser and filter start anew;
    else:   c ← μ c + (1 - μ) e,     μ = 1 - 0.15 (1 - φ).

What a reset takes is pulled back: the loss has 5 φ² Σ F (θ - θ̄)², with φ of the step before, and F
and θ̄ the means of squared gradients and of parameters between resets, averaged over the resets
(0.9 old, 0.1 new).

Defaults are the authors': r0 = 0.5, r1 = 20, and ETA's (SGD with momentum 0.9, rate 0.00025,
batches of 64). Each step costs one more forward pass, of the source.

What differs: nothing in the formulas. The authors also add it to ROID, where their code resets
the anchor and not the model; here there is one slot for either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from acclimate.methods.eta import ETA
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.objectives import entropy
from acclimate.parts.regularizers import Regularizer, reset_to_source

__all__ = ["ASR", "SelectiveReset"]


@dataclass
class Collapse:
    """The entropy below which it collapses, and what the parameters were between resets."""

    bound: float
    squares: dict[str, Tensor]
    values: dict[str, Tensor]
    importance: dict[str, Tensor]
    centre: dict[str, Tensor]
    steps: int = 0
    resets: int = 0
    pull: float = 0.0
    _before: dict[str, Tensor] = field(default_factory=dict)

    def add(self, learning: dict[str, torch.nn.Parameter], *, learnt: bool) -> None:
        """Count parameters in, and the gradients at them without the pull's own."""
        for name, parameter in learning.items():
            before = self._before[name] if learnt else parameter.detach()
            if learnt and parameter.grad is not None:
                pulled = 2 * self.pull * self.importance[name] * (before - self.centre[name])
                self.squares[name] = self.squares[name] + (parameter.grad - pulled).square()
            self.values[name] = self.values[name] + before
        self.steps += 1

    def average(self, *, momentum: float = 0.9) -> None:
        """Take what was counted since the last reset into the averages, and start anew."""
        new = 1 - momentum if self.resets else 1.0
        for sums, means in ((self.squares, self.importance), (self.values, self.centre)):
            for name, total in sums.items():
                means[name] = torch.lerp(means[name], total / self.steps, new)
                sums[name] = torch.zeros_like(total)
        self.steps, self.resets = 0, self.resets + 1


@PARTS["regularizer"].register("selective-reset")
@dataclass(frozen=True, kw_only=True)
class SelectiveReset(Regularizer):
    """Back to the source from the output on, as far as the predictions have collapsed.

    ``adjustment`` is how fast the bound follows the entropy, ``weight`` that of the pull,
    ``share`` of log's argument C the first bound; ``kept`` and ``slope`` are r0 and r1.
    """

    adjustment: float = option(0.15, low=0, high=1)
    weight: float = option(5.0, low=0)
    share: float = option(0.5, low=0, high=1, open_low=True)
    kept: float = option(0.5, low=0, high=1)
    slope: float = option(20.0, low=0)
    shareable = False

    def prepare(self, learner: LearnerLike) -> Collapse:
        def nothing() -> dict[str, Tensor]:
            return {name: torch.zeros_like(p) for name, p in learner.learning.items()}

        return Collapse(self._first_bound(learner), nothing(), nothing(), nothing(), nothing())

    def _first_bound(self, learner: LearnerLike) -> float:
        return math.log(learner.classes * self.share)

    def loss(self, state: Collapse, step: Step) -> Tensor | None:
        """5 φ² Σ F (θ - θ̄)²."""
        learning = step.learner.learning
        state._before = {name: p.detach().clone() for name, p in learning.items()}
        if not (state.resets and state.pull):
            return None
        pulls = [
            (state.importance[name] * (parameter - state.centre[name]).square()).sum()
            for name, parameter in learning.items()
        ]
        return state.pull * torch.stack(pulls).sum()

    @torch.no_grad()
    def after_step(self, state: Collapse, step: Step) -> None:
        """See whether it collapses, and go back as far as it did."""
        learner, logits = step.learner, step.student.logits.detach()
        state.add(learner.learning, learnt=step.loss is not None)
        source = learner.forward(step.images, weights=learner.source, learning=False).logits
        changed = float((source.argmax(dim=1) != logits.argmax(dim=1)).double().mean())
        state.pull = self.weight * changed**2
        now = float(entropy(logits.mean(dim=0, keepdim=True)))
        if now < state.bound:
            state.average()
            self._reset(learner, keep=max(self.kept - self.slope * (state.bound - now), 0.0))
            state.bound = self._first_bound(learner)
        else:
            state.bound += self.adjustment * (1 - changed) * (now - state.bound)

    def _reset(self, learner: LearnerLike, *, keep: float) -> None:
        names = list(learner.learning)
        reset_to_source(learner, keep=names[: math.ceil(keep * len(names))])


ASR = replace(
    ETA,
    name="asr",
    summary="ASR: ETA, reset from the output on as far as it collapsed (Lim et al. 2026)",
    regularizer=SelectiveReset(),
)
