"""T3A: test-time template adjustment of the classifier (Iwasawa & Matsuo 2021). No gradients.

Every class k keeps a set of supports S_k, at first its own row of the classifier, w_k / |w_k|. An
image with features f joins the set of the class the source's classifier gives it, as f / |f|; of
each set only the M supports stay with the least entropy under that classifier. The logits are

    z_k = f . c_k,    c_k the mean of S_k, scaled to length 1,

asked for after the batch has joined. The centroids are a linear classifier without a bias, and that
is what the returned model has.

M (``supports``) is chosen from {1, 5, 20, 50, 100, all} per data set in the paper; 20 here. The
statistics are the source's.

What differs: the text has no scaling to length 1; the authors' code, which gave the paper's
numbers, has it. w_k starts the set of class k, as in the text, where the code puts it into that of
the class its classifier gives to w_k itself: for a trained classifier the same, and no class is
ever without a support. Images with features that are not finite join no set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.models.outputs import classifier_weight, find_classifier
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.normalization import Source
from acclimate.parts.objectives import entropy
from acclimate.parts.predictors import Predictor
from acclimate.recipe import Recipe

__all__ = ["T3A", "TemplateAdjustment", "most_confident"]


def most_confident(classes: Tensor, entropies: Tensor, *, per_class: int) -> Tensor:
    """Which entries are among the ``per_class`` of lowest entropy of their class: their indices.

    >>> classes, entropies = torch.tensor([0, 0, 1, 0]), torch.tensor([0.3, 0.1, 0.9, 0.2])
    >>> most_confident(classes, entropies, per_class=2).sort().values
    tensor([1, 2, 3])
    """
    order = entropies.argsort(stable=True)
    order = order[classes[order].argsort(stable=True)]
    counts = classes.bincount()
    starts = counts.cumsum(dim=0) - counts
    places = torch.arange(len(classes), device=classes.device) - starts[classes[order]]
    return order[places < per_class]


@dataclass
class Supports:
    """Features of length 1, the class each stands for, and how unsure the source was of it."""

    features: Tensor
    classes: Tensor
    entropies: Tensor

    def centroids(self) -> Tensor:
        """The direction of each class: classes × features. No class is without a support."""
        classes = int(self.classes.max()) + 1
        sums = self.features.new_zeros(classes, self.features.shape[1])
        sums.index_add_(0, self.classes, self.features)
        return F.normalize(sums, dim=1)


@PARTS["predictor"].register("t3a")
@dataclass(frozen=True, kw_only=True)
class TemplateAdjustment(Predictor):
    """Centroids of up to ``supports`` confident images per class for a classifier (None: all)."""

    needs = frozenset({"features"})
    gathers: ClassVar[bool] = True

    supports: int | None = option(20, low=1)

    @torch.no_grad()
    def prepare(self, learner: LearnerLike) -> Supports:
        rows = classifier_weight(learner.model).detach().flatten(1)
        bias: Tensor | None = find_classifier(learner.model)[1].bias  # type: ignore[assignment]
        logits = F.linear(rows, rows, None if bias is None else bias.detach())
        classes = torch.arange(len(rows), device=rows.device)
        return Supports(F.normalize(rows, dim=1), classes, entropy(logits))

    def predict(self, state: Supports, step: Step) -> Tensor:
        outputs = step.student  # with its gradients: an objective may learn from the same pass
        assert outputs.features is not None
        features, logits = outputs.features.detach(), outputs.logits.detach()
        if features.shape[1] != state.features.shape[1]:
            raise AcclimateError(
                f"expected {state.features.shape[1]} features, as many as the classifier has "
                f"columns, got {features.shape[1]}; T3A needs a linear classifier"
            )
        if step.learning:
            self._join(state, features, logits)
        return features @ state.centroids().T

    def _join(self, state: Supports, features: Tensor, logits: Tensor) -> None:
        sound = features.isfinite().all(dim=1) & logits.isfinite().all(dim=1)
        features, logits = features[sound], logits[sound]
        state.features = torch.cat([state.features, F.normalize(features, dim=1)])
        state.classes = torch.cat([state.classes, logits.argmax(dim=1)])
        state.entropies = torch.cat([state.entropies, entropy(logits)])
        if self.supports is not None:
            kept = most_confident(state.classes, state.entropies, per_class=self.supports)
            state.features, state.classes = state.features[kept], state.classes[kept]
            state.entropies = state.entropies[kept]

    def export(self, state: Supports, learner: LearnerLike) -> None:
        """Write the centroids into the classifier."""
        name, classifier = find_classifier(learner.model)
        prefix = f"{name}." if name else ""
        learner.overwrite(f"{prefix}weight", state.centroids())
        if isinstance(classifier.bias, Tensor):
            learner.overwrite(f"{prefix}bias", torch.zeros_like(classifier.bias))


T3A = Recipe(
    name="t3a",
    summary="T3A: the classifier moves to confident images' features (Iwasawa & Matsuo 2021)",
    objective=None,
    normalization=Source(),
    predictor=TemplateAdjustment(),
    batch_size=64,
)
