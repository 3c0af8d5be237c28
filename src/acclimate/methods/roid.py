"""ROID, universal test-time adaptation (Marsden, Döbler et al., WACV 2024).

Over scale and shift of the normalisation layers, with p(x) the prediction and B images a batch:

    L = 1/B Σ_i w_i · (SLR(p_i) + SCE(p(view(x_i)), p_i)),

- SLR(p) = -Σ_c p_c log(p_c / (1 - p_c) + 10⁻⁵), a soft likelihood ratio with p_c at most 0.99;
- SCE, half the cross-entropy of each with the other: a moved, mirrored, recoloured view agrees;
- w_i = exp(3 d_i h_i) for images more diverse than their batch's mean, 0 for the rest: d_i is 1
  less the cosine between p_i and the moving average of predictions (0.9 old), h_i is minus the
  entropy, both scaled to [0, 1] within the batch;

then θ ← 0.99 θ + 0.01 θ°, back towards the source. Predictions are the logits times
(q + s) / (1 + s C) with q the batch's mean prediction and s = max(1/B, 1/C) / max q: classes that a
batch is full of are favoured, which helps where images of one class come together.

Defaults are the authors' for ImageNet-C: SGD with momentum 0.9, rate 0.00025, batches of 64; a
vision transformer takes the same. For CIFAR-10 they take Adam at 0.001 and batches of 200.

What differs: views are :func:`~acclimate.methods.views.jittered` without noise, since model input
is normalised already: no change of saturation, hue or gamma. B is the size of each batch, also of a
last, smaller one. Where one image counts alone all are shown as views, since it would have no
statistics. Of a batch whose images are all alike each counts 1, where the code divides by 0. No
plain model corrects its logits by the batch: ``adapt`` returns the weights, and takes its
predictions from the method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.methods.tent import TENT
from acclimate.methods.views import jittered
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.objectives import Objective, entropy, tempered_cross_entropy
from acclimate.parts.predictors import Predictor
from acclimate.parts.regularizers import Regularizer

__all__ = [
    "ROID",
    "PriorCorrected",
    "SourceAveraging",
    "WeightedLikelihoodRatio",
    "prior_corrected",
    "soft_likelihood_ratio",
    "symmetric_cross_entropy",
]


def soft_likelihood_ratio(logits: Tensor, *, clip: float = 0.99) -> Tensor:
    """The negative expected log-odds of the prediction, per image, with confidence up to ``clip``.

    >>> soft_likelihood_ratio(torch.tensor([[9.0, 0.0], [99.0, 0.0]]))
    tensor([-4.5481, -4.5492])
    """
    p = logits.softmax(dim=1).clamp(max=clip)
    return -(p * (p / (1 - p) + 1e-5).log()).sum(dim=1)


def symmetric_cross_entropy(logits: Tensor, others: Tensor) -> Tensor:
    """The mean of two predictions' cross-entropies with one another, per image.

    >>> z = torch.tensor([[2.0, 0.0]])
    >>> bool(torch.isclose(symmetric_cross_entropy(z, z), entropy(z)))
    True
    """
    there, back = tempered_cross_entropy(logits, others), tempered_cross_entropy(others, logits)
    return 0.5 * there + 0.5 * back


def prior_corrected(logits: Tensor) -> Tensor:
    """Logits times the smoothed share of their class in the batch.

    >>> prior_corrected(torch.tensor([[2.0, 1.0], [2.0, 1.0]])).argmax(dim=1)
    tensor([0, 0])
    """
    images, classes = logits.shape
    share = logits.softmax(dim=1).mean(dim=0)
    smooth = max(1 / images, 1 / classes) / share.max()
    return logits * (share + smooth) / (1 + smooth * classes)


def _within_batch(values: Tensor) -> Tensor:
    low = values.min()
    return (values - low) / (values.max() - low).clamp_min(torch.finfo(values.dtype).tiny)


@dataclass
class Diversity:
    """The moving average of the predictions, and what views are drawn from."""

    probability: Tensor
    generator: torch.Generator


@PARTS["objective"].register("weighted-likelihood-ratio")
@dataclass(frozen=True, kw_only=True)
class WeightedLikelihoodRatio(Objective):
    """The likelihood ratio of diverse and certain images, and ``consistency`` with a view."""

    momentum: float = option(0.9, low=0, high=1)
    temperature: float = option(1 / 3, low=0, open_low=True)
    clip: float = option(0.99, low=0, high=1, open_low=True, open_high=True)
    consistency: float = option(1.0, low=0)
    shareable: ClassVar[bool] = False

    def prepare(self, learner: LearnerLike) -> Diversity:
        device = next(learner.model.parameters()).device
        even = torch.full((learner.classes,), 1 / learner.classes, device=device)
        return Diversity(even, learner.generator)

    def loss(self, state: Diversity, step: Step) -> Tensor:
        logits = step.student.logits
        weights = self._weights(state, logits.detach())
        total = soft_likelihood_ratio(logits, clip=self.clip)
        counts = weights != 0
        if self.consistency:
            # One image alone would have no batch statistics: all are shown then.
            shown = counts if int(counts.sum()) > 1 else torch.ones_like(counts)
            view = jittered(step.images[shown], state.generator, noise=0.0)
            agreement = symmetric_cross_entropy(step.student_of(view).logits, logits[shown])
            places = shown.nonzero().flatten()
            total = total.index_add(0, places, agreement, alpha=self.consistency)
        return torch.where(counts, weights * total, 0.0)

    def _weights(self, state: Diversity, logits: Tensor) -> Tensor:
        p = logits.softmax(dim=1)
        known = state.probability.to(p)
        diverse = _within_batch(1 - F.cosine_similarity(known[None], p, dim=1))
        certain = _within_batch(-entropy(logits))
        state.probability = torch.lerp(p.mean(dim=0), known, self.momentum)
        weights = (diverse * certain / self.temperature).exp()
        return torch.where(diverse < diverse.mean(), 0.0, weights)


@PARTS["regularizer"].register("source-averaging")
@dataclass(frozen=True, kw_only=True)
class SourceAveraging(Regularizer):
    """After each step, ``momentum`` of what was learnt and the rest of the source."""

    steady = True

    momentum: float = option(0.99, low=0, high=1)

    @torch.no_grad()
    def after_step(self, state: Any, step: Step) -> None:
        learning, source = step.learner.learning, step.learner.source
        for name, parameter in learning.items():
            parameter.lerp_(source[name], 1 - self.momentum)


@PARTS["predictor"].register("prior-corrected")
@dataclass(frozen=True, kw_only=True)
class PriorCorrected(Predictor):
    """The model that learns, its logits corrected by the classes of the batch."""

    exports: ClassVar[bool] = False

    def predict(self, state: Any, step: Step) -> Tensor:
        return prior_corrected(step.student.logits.detach())


ROID = replace(
    TENT,
    name="roid",
    summary="ROID: likelihood ratio of diverse images, anchored, corrected (Marsden et al. 2024)",
    objective=WeightedLikelihoodRatio(),
    regularizer=SourceAveraging(),
    predictor=PriorCorrected(),
)
