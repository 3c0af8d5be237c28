"""AdaContrast (Chen et al. 2022, "Contrastive Test-Time Adaptation").

Each image is seen weakly augmented (w) and twice strongly (q, k), by the student θ and by its
moving average θ' (momentum 0.999). The loss is the sum of three terms, each of weight 1:

- classification, −log p_θ(ŷ | q), where ŷ is the class for which the 10 nearest neighbours of the
  student's features of w (by cosine) vote in a queue of earlier images; each votes with θ''s
  probabilities on its own w;
- contrast, −log exp(q·k⁺/0.07) / (exp(q·k⁺/0.07) + Σ exp(q·k⁻/0.07)): the student's feature of q
  must be near θ''s of k and far from a queue of earlier k⁻, of other pseudo-labels only;
- diversity, Σ_c p̄_c log p̄_c of the student's mean prediction p̄ on the batch's q.

All parameters learn, by SGD with Nesterov momentum at 2e-4 and weight decay 1e-4 in batches of 128
(as for VisDA-C), and keys are drawn from a queue of 16,384. The student predicts, on the images
themselves.

Other than published: features are what the classifier is fed, without a bottleneck put in before
training on the source, and all layers learn at one rate (the authors' new layers at ten times it),
for one epoch rather than 15 with a cosine schedule. The queues start empty, since the images to
come are not known in a stream, and both have one size: the first batch is labelled by the student
alone and contrasted with nothing. As the text has it, and other than in the authors' code, a key in
the queue is left out by its own pseudo-label, not by that of the image which is about to take its
place. Strong views are crops in another light (:func:`~acclimate.methods.views.lit`), without
changes of colour and without blur.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.methods.views import lit, moved, random_crops, sides
from acclimate.models.outputs import Outputs, classifier_weight, find_classifier
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.objectives import Objective
from acclimate.parts.optimizers import SGD
from acclimate.parts.selectors import All
from acclimate.parts.teachers import MovingAverage
from acclimate.recipe import Recipe

__all__ = ["ADACONTRAST", "AdaContrast", "contrastive", "votes"]


def votes(features: Tensor, bank: Tensor, probabilities: Tensor, *, neighbours: int) -> Tensor:
    """The mean probabilities of the nearest neighbours in a bank; features have length 1.

    >>> bank, votes_of = torch.eye(2), torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    >>> votes(torch.tensor([[0.8, 0.6]]), bank, votes_of, neighbours=1)
    tensor([[0.9000, 0.1000]])
    """
    nearest = (features @ bank.T).topk(min(neighbours, len(bank)), dim=1).indices
    return probabilities[nearest].mean(dim=1)


def contrastive(
    queries: Tensor,
    keys: Tensor,
    others: Tensor,
    same: Tensor,
    *,
    temperature: float,
) -> Tensor:
    """How badly each query finds its own key among others, those of the same class left out.

    >>> one = torch.eye(2)
    >>> contrastive(one, one, one, torch.eye(2, dtype=torch.bool), temperature=1.0).exp()
    tensor([1.3679, 1.3679])
    """
    own = (queries * keys).sum(dim=1, keepdim=True)
    against = (queries @ others.T).masked_fill(same, -torch.inf)
    return -(torch.cat([own, against], dim=1) / temperature).log_softmax(dim=1)[:, 0]


@dataclass
class Queues:
    """Features and probabilities that vote, and keys with their pseudo-labels; oldest first."""

    generator: torch.Generator
    features: Tensor
    probabilities: Tensor
    keys: Tensor
    labels: Tensor
    _labels_now: Tensor | None = field(default=None)


@PARTS["objective"].register("adacontrast")
@dataclass(frozen=True, kw_only=True)
class AdaContrast(Objective):
    """Pseudo-labels by nearest neighbours, contrast with keys of other classes, diversity.

    ``contrast`` and ``diversity`` weigh those terms against the first.
    """

    needs = frozenset({"features"})

    neighbours: int = option(10, low=1)
    queue: int = option(16384, low=1)
    temperature: float = option(0.07, low=0, open_low=True)
    contrast: float = option(1.0, low=0)
    diversity: float = option(1.0, low=0)

    def check(self, model: nn.Module) -> None:
        """Refuse a model without a layer whose input would be the features."""
        find_classifier(model)

    def prepare(self, learner: LearnerLike) -> Queues:
        weight = classifier_weight(learner.model)
        width = weight.shape[1]
        return Queues(
            learner.generator,
            features=weight.new_zeros(0, width),
            probabilities=weight.new_zeros(0, learner.classes),
            keys=weight.new_zeros(0, width),
            labels=torch.zeros(0, dtype=torch.int64, device=weight.device),
        )

    def views(self, state: Queues, images: Tensor) -> Sequence[Tensor]:
        """One weak view, moved and mirrored; two strong ones, for the query and for its key."""
        draw = state.generator
        weak = moved(images, draw, flip=True, affine=0.0, pixels=min(sides(images)) / 14)
        return [weak, self._strong(images, draw), self._strong(images, draw)]

    def _strong(self, images: Tensor, draw: torch.Generator) -> Tensor:
        crops = random_crops(images, (0.2, 1.0), generator=draw)
        return lit(crops, draw, contrast=0.4, brightness=0.8)

    def loss(self, state: Queues, step: Step) -> Tensor:
        """The three terms."""
        _, query, key = step.views
        state._labels_now = labels = self._labels(state, step)
        student = step.student_of(query)
        contrasted = contrastive(
            _direction(student, state),
            _direction(step.teacher_of(key), state).detach(),
            state.keys,
            labels[:, None] == state.labels,
            temperature=self.temperature,
        )
        mean = student.logits.softmax(dim=1).mean(dim=0)
        uniformity = torch.xlogy(mean, mean).sum()
        classified = F.cross_entropy(student.logits, labels, reduction="none")
        return classified + self.contrast * contrasted + self.diversity * uniformity

    @torch.no_grad()
    def _labels(self, state: Queues, step: Step) -> Tensor:
        weak = step.student_of(step.views[0])
        if len(state.features) == 0:
            return weak.logits.argmax(dim=1)
        voted = votes(
            _direction(weak, state),
            state.features,
            state.probabilities,
            neighbours=self.neighbours,
        )
        return voted.argmax(dim=1)

    @torch.no_grad()
    def after_step(self, state: Queues, step: Step) -> None:
        labels, state._labels_now = state._labels_now, None
        if labels is None:  # nothing counted
            return
        weak, _, key = step.views
        slow = step.teacher_of(weak)
        state.features = self._queued(state.features, _direction(slow, state))
        state.probabilities = self._queued(
            state.probabilities, slow.logits.softmax(dim=1).to(state.keys)
        )
        state.keys = self._queued(state.keys, _direction(step.teacher_of(key), state))
        state.labels = self._queued(state.labels, labels)

    def _queued(self, queue: Tensor, new: Tensor) -> Tensor:
        return torch.cat([queue, new.detach()])[-self.queue :]


def _direction(outputs: Outputs, state: Queues) -> Tensor:
    assert outputs.features is not None
    return F.normalize(outputs.features.to(state.keys), dim=1)  # the network may compute in half


ADACONTRAST = Recipe(
    name="adacontrast",
    summary="nearest-neighbour pseudo-labels and a contrastive term (Chen et al. 2022)",
    objective=AdaContrast(),
    selector=All(),
    teacher=MovingAverage(),
    optimizer=SGD(lr=2e-4, weight_decay=1e-4, nesterov=True),
    batch_size=128,
)
