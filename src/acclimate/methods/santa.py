"""SANTA, source-anchored adaptation (Chakrabarty, Sreenivas & Biswas, TMLR 2023).

Over scale and shift of the normalisation layers, and a projector g of two layers that is new:

    L = mean of (H(p, p°) + H(p', p°)) / 2 + contrast(g(c), g(f), g(f')),

with p and p' the predictions for an image and a view of it, p° the source's for the image,
H(p, q) = -Σ p log q; f and f' the features of both, and c the prototype of a class (the mean
feature of its source images) whose direction is nearest f. The contrast asks each of the three for
the other two among those of the whole batch: supervised contrastive loss at temperature 0.1.

Defaults are those of the public comparison for ImageNet-C: SGD with momentum 0.9, rate 0.01,
batches of 64. For CIFAR-10 it takes Adam at 0.001 and batches of 200.

Prototypes need images of the source: ``objective.images=PATH`` names a folder or an array file, of
which up to ``samples`` are taken, with their labels or, without, with the model's own. Without a
path the classifier's rows stand in, as long as the features of the batch are on average.

What differs: views are :func:`~acclimate.methods.views.jittered`; all else is as in the code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.data import batches, open_images
from acclimate.methods.views import jittered
from acclimate.models.device import floating_dtype
from acclimate.models.given import given_preprocessing
from acclimate.models.outputs import Outputs, classifier_weight, find_classifier
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.objectives import Objective, tempered_cross_entropy
from acclimate.parts.optimizers import SGD
from acclimate.recipe import Recipe

__all__ = ["SANTA", "AnchoredContrast", "PrototypeContrast", "Prototypes", "agreement"]


def agreement(groups: Sequence[Tensor], *, temperature: float) -> Tensor:
    """How badly the members of each image find one another in the batch; groups of N × features.

    >>> alike = torch.eye(2)
    >>> agreement([alike, alike], temperature=0.1).round(decimals=3)
    tensor([0., 0.])
    """
    members = F.normalize(torch.cat(list(groups)), dim=1)
    own = torch.eye(len(members), dtype=torch.bool, device=members.device)
    similar = (members @ members.T / temperature).masked_fill(own, -torch.inf)
    found = similar.log_softmax(dim=1).masked_fill(own, 0.0)
    count, images = len(groups), len(groups[0])
    of_same = found.view(count, images, count, images).diagonal(dim1=1, dim2=3)
    return -of_same.sum(dim=(0, 1)) / (count * (count - 1))


@dataclass
class Prototypes:
    """Sums of features by class, how many they are of, and the projector."""

    generator: torch.Generator
    sums: Tensor
    counts: Tensor
    projector: nn.Module
    _classifier: nn.Module

    def nearest(self, features: Tensor) -> Tensor:
        """The prototype each feature points to most."""
        known = self.counts > 0
        if bool(known.any()):
            prototypes = (self.sums[known] / self.counts[known, None]).to(features)
        else:
            rows = self._classifier.weight
            assert isinstance(rows, Tensor)
            length = features.norm(dim=1).mean()
            prototypes = length * F.normalize(rows.detach().flatten(1), dim=1).to(features)
        alike = F.normalize(features, dim=1) @ F.normalize(prototypes, dim=1).T
        return prototypes[alike.argmax(dim=1)]


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer, bound = nn.Linear(inputs, outputs), 1 / math.sqrt(inputs)
    for parameter in layer.parameters():
        draws = torch.rand(parameter.shape, generator=generator)
        parameter.data.copy_((2 * draws - 1) * bound)
    return layer


@dataclass(frozen=True, kw_only=True)
class PrototypeContrast(Objective):
    """A loss with a contrast between source prototypes, features and those of a view.

    ``images`` is a folder or array file of source images, of which ``samples`` are taken.
    """

    needs = frozenset({"features"})
    shareable: ClassVar[bool] = False

    contrast: float = option(1.0, low=0)
    temperature: float = option(0.1, low=0, open_low=True)
    width: int = option(128, low=1)
    images: str | None = None
    samples: int = option(100_000, low=1)

    def check(self, model: nn.Module) -> None:
        """Refuse a model without a layer whose input would be the features."""
        find_classifier(model)

    def prepare(self, learner: LearnerLike) -> Prototypes:
        weight = classifier_weight(learner.model).detach().flatten(1)
        projector = nn.Sequential(
            _linear(weight.shape[1], self.width, learner.generator),
            nn.ReLU(),
            _linear(self.width, self.width, learner.generator),
        ).to(weight)
        return Prototypes(
            learner.generator,
            weight.new_zeros(learner.classes, weight.shape[1]),
            weight.new_zeros(learner.classes),
            projector,
            find_classifier(learner.model)[1],
        )

    def parameters(self, state: Prototypes) -> Mapping[str, nn.Parameter]:
        return dict(state.projector.named_parameters())

    @torch.no_grad()
    def start_epoch(self, state: Prototypes, learner: LearnerLike) -> None:
        """Before the first, go through the source images where there are any."""
        if self.images is None or bool(state.counts.any()):
            return
        known = given_preprocessing(learner.model)
        opened = open_images(self.images, preprocessing=known, progress=False)
        order = torch.randperm(len(opened), generator=learner.generator)[: self.samples]
        for batch in batches(
            opened, batch_size=learner.batch_size, order=order, device=state.sums.device
        ):
            images = batch.images.to(floating_dtype(learner.model))
            outputs = learner.forward(images, learning=False)
            assert outputs.features is not None
            labels = outputs.logits.argmax(dim=1)
            if opened.labels is not None:
                given = torch.as_tensor(opened.labels)[batch.indices].to(labels)
                labels = torch.where(given >= 0, given, labels)
            state.sums.index_add_(0, labels, outputs.features.to(state.sums))
            state.counts.index_add_(0, labels, torch.ones_like(labels).to(state.counts))

    def views(self, state: Prototypes, images: Tensor) -> Sequence[Tensor]:
        """The images themselves, and another view of each."""
        return [images, jittered(images, state.generator)]

    def loss(self, state: Prototypes, step: Step) -> Tensor:
        image, view = (step.student_of(each) for each in step.views)
        assert image.features is not None
        assert view.features is not None
        groups = [state.nearest(image.features.detach()), image.features, view.features]
        projected = [state.projector(each.to(state.sums)) for each in groups]
        contrast = agreement(projected, temperature=self.temperature)
        return self.training(state, step, image, view) + self.contrast * contrast

    def training(self, state: Prototypes, step: Step, image: Outputs, view: Outputs) -> Tensor:
        """The term of the predictions."""
        raise NotImplementedError


@PARTS["objective"].register("anchored-contrast")
@dataclass(frozen=True, kw_only=True)
class AnchoredContrast(PrototypeContrast):
    """Predictions for an image and a view of it that the source finds likely, and the contrast."""

    def training(self, state: Prototypes, step: Step, image: Outputs, view: Outputs) -> Tensor:
        learner = step.learner
        with torch.no_grad():
            anchor = learner.forward(step.images, weights=learner.source, learning=False).logits
        both = [tempered_cross_entropy(anchor, each.logits) for each in (image, view)]
        return 0.5 * both[0] + 0.5 * both[1]


SANTA = Recipe(
    name="santa",
    summary="SANTA: anchored to the source's predictions and prototypes (Chakrabarty et al. 2023)",
    objective=AnchoredContrast(),
    optimizer=SGD(lr=0.01),
    batch_size=64,
)
