"""NEO, no-optimisation test-time adaptation by re-centring (Murphy et al., ICLR 2026).

A shift moves the features of all images the same way. So the mean m of the features of the images
seen so far, those of the batch among them, is taken off before the classifier:

    z = W (f - m) + b.

No gradient, no option. The model returned has the bias b - W m and nothing else changed.

``predictor.momentum=0.1`` is the authors' variant for shifts that change: m moves to the mean of
each batch by a tenth, from zero.

What differs: nothing in the formulas. The authors use it on vision transformers, whose last layer
norm centres the features of source images near the origin; behind a ReLU no feature is negative,
their mean is far from the origin on source images too, and taking it off is no longer a
correction of the shift alone. Statistics of batch norm are the source's. Images whose features are
not finite do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from acclimate.errors import AcclimateError
from acclimate.models.outputs import classifier_weight, find_classifier
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.normalization import Source
from acclimate.parts.predictors import Predictor
from acclimate.recipe import Recipe

__all__ = ["NEO", "Recentred"]


@dataclass
class Centre:
    """The mean of the features so far, of how many images, and the classifier they are for."""

    mean: Tensor
    _classifier: nn.Module
    seen: int = 0

    def shift(self) -> Tensor:
        """What the mean adds to each logit."""
        weight = self._classifier.weight
        assert isinstance(weight, Tensor)
        return weight.detach().flatten(1) @ self.mean


@PARTS["predictor"].register("recentred")
@dataclass(frozen=True, kw_only=True)
class Recentred(Predictor):
    """The classifier, shown features less their mean so far.

    With a ``momentum`` it is a moving average over batches in place of the mean of all.
    """

    needs = frozenset({"features"})
    gathers: ClassVar[bool] = True

    momentum: float | None = option(None, low=0, high=1, open_low=True)

    def check(self, model: nn.Module) -> None:
        name, classifier = find_classifier(model)
        if not isinstance(classifier.bias, Tensor):
            raise AcclimateError(
                f"expected a classifier with a bias, which takes up the centre of the features; "
                f"{name or type(model).__name__} has none; choose t3a, which brings its own weights"
            )

    def prepare(self, learner: LearnerLike) -> Centre:
        columns = classifier_weight(learner.model).detach().flatten(1)
        classifier = find_classifier(learner.model)[1]
        return Centre(columns.new_zeros(columns.shape[1]), classifier)

    def predict(self, state: Centre, step: Step) -> Tensor:
        outputs = step.student
        assert outputs.features is not None
        features = outputs.features.detach()
        if features.shape[1] != len(state.mean):
            raise AcclimateError(
                f"expected {len(state.mean)} features, as many as the classifier has columns, got "
                f"{features.shape[1]}; NEO needs a linear classifier"
            )
        if step.learning:
            self._gather(state, features[features.isfinite().all(dim=1)])
        return outputs.logits.detach() - state.shift()

    def _gather(self, state: Centre, features: Tensor) -> None:
        if not len(features):
            return
        state.seen += len(features)
        share = len(features) / state.seen if self.momentum is None else self.momentum
        state.mean = torch.lerp(state.mean, features.mean(dim=0), share)

    def export(self, state: Centre, learner: LearnerLike) -> None:
        """Write the bias that does the same."""
        name, classifier = find_classifier(learner.model)
        assert isinstance(classifier.bias, Tensor)
        centred = classifier.bias.detach() - state.shift()
        learner.overwrite(f"{name}.bias" if name else "bias", centred)


NEO = Recipe(
    name="neo",
    summary="NEO: features re-centred by their running mean (Murphy et al. 2026)",
    objective=None,
    normalization=Source(),
    predictor=Recentred(),
    batch_size=64,
)
