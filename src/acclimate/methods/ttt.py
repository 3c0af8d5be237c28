"""TTT: test-time training on rotations (Sun et al. 2020).

A model that learnt its classes together with a second head, which predicts by which quarter of a
turn an image was rotated, continues to learn that second task, which needs no labels, on the image
to be predicted. With copies c_b(x) of an image, cropped, mirrored and turned by q_b quarters,

    L(x) = 1/B sum_b CE(head(f(c_b(x))), q_b)

moves the features f; the classifier and the rotation head stay. ``acclimate pretrain --method ttt``
trains such a model and writes its head beside it; without that head there is nothing to learn from.

Defaults of the paper: B = 32 copies, SGD at 0.001 without momentum or weight decay, ten steps on
each image, which is then forgotten (``episode=image``). Its online version keeps what was learnt:
``episode=none epochs=1 batch_size=1``, one step at that rate for each image; larger batches take
one step for all of their images, at a rate scaled with their size. The paper then predicts after
the step (``Stream(..., predictions="after")``).

What differs: the paper branches off in the middle of a ResNet with group norm. Here the second head
is one linear layer on what the classifier is fed, so that any architecture can have one, and all
below it is shared (the published code has this choice as its last layer). Batch norms keep the
source's statistics. The published code moves the head as well by default; the text, and
this, only the features (``objective.learn_head``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from acclimate.checkpoint import read_tensors
from acclimate.errors import AcclimateError
from acclimate.methods.views import random_crops, sides
from acclimate.models.outputs import classifier_weight
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.normalization import Source
from acclimate.parts.objectives import Objective
from acclimate.parts.optimizers import SGD
from acclimate.parts.selectors import Backbone
from acclimate.recipe import Recipe

__all__ = ["QUARTERS", "TTT", "Rotation", "turned"]

QUARTERS = 4


def turned(images: Tensor, quarters: Tensor) -> Tensor:
    """Each image turned by so many quarters of a circle.

    >>> turned(torch.tensor([[[[1, 2], [3, 4]]]]), torch.tensor([2]))
    tensor([[[[4, 3],
              [2, 1]]]])
    """
    height, width = sides(images)
    if height != width:
        raise AcclimateError(
            f"expected square images to turn, got {height}×{width}; crop them to squares"
        )
    turns = torch.stack([images.rot90(k, dims=(2, 3)) for k in range(QUARTERS)])
    return turns[quarters, torch.arange(len(images), device=images.device)]


@dataclass
class RotationState:
    """The head, the draws, and by how much the copies of this step are turned."""

    head: nn.Linear
    generator: torch.Generator
    _quarters: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))


@PARTS["objective"].register("rotation")
@dataclass(frozen=True, kw_only=True)
class Rotation(Objective):
    """By how much were ``copies`` of each image turned?

    ``head`` is the safetensors file that pre-training wrote. Crops have an area of
    ``smallest_crop`` and more of the image: 0.7 is near what moving it by an eighth of its side
    leaves, the augmentation of the pre-training.
    """

    needs = frozenset({"features"})
    classifies = False

    head: str | None = None
    copies: int = option(32, low=1)
    smallest_crop: float = option(0.7, low=0, high=1, open_low=True)
    learn_head: bool = False

    def check(self, model: nn.Module) -> None:
        """Refuse to start without the head, or with another model's."""
        if self.head is None:
            raise AcclimateError(
                "test-time training needs the rotation head that the model was trained with: give "
                "its file as objective.head=FILE (`acclimate pretrain --method ttt` writes "
                "head.safetensors beside the model)"
            )
        _trained_head(self.head, model)

    def prepare(self, learner: LearnerLike) -> RotationState:
        assert self.head is not None
        like = next(learner.model.parameters())
        head = _trained_head(self.head, learner.model).to(like).requires_grad_(self.learn_head)
        return RotationState(head, learner.generator)

    def parameters(self, state: RotationState) -> Mapping[str, nn.Parameter]:
        return dict(state.head.named_parameters()) if self.learn_head else {}

    def project(
        self, state: RotationState, features: Tensor, weights: Mapping[str, Tensor] | None
    ) -> Tensor:
        projections: Tensor = functional_call(state.head, dict(weights or {}), (features,))
        return projections

    def views(self, state: RotationState, images: Tensor) -> Sequence[Tensor]:
        """All copies in one batch, those of an image one after the other."""
        draw = state.generator
        copies = images.repeat_interleave(self.copies, dim=0)
        cropped = random_crops(copies, (self.smallest_crop, 1.0), generator=draw)
        quarters = torch.randint(QUARTERS, (len(copies),), generator=draw, device=draw.device)
        state._quarters = quarters.to(images.device)
        return [turned(cropped, state._quarters)]

    def loss(self, state: RotationState, step: Step) -> Tensor:
        predicted = step.student_of(step.views[0]).projections
        assert predicted is not None
        apart = F.cross_entropy(predicted, state._quarters, reduction="none")
        return apart.view(-1, self.copies).mean(dim=1)


def _trained_head(path: str, model: nn.Module) -> nn.Linear:
    head = nn.Linear(classifier_weight(model).shape[1], QUARTERS)
    tensors, _ = read_tensors(Path(path))
    try:
        head.load_state_dict(tensors)
    except RuntimeError as error:
        detail = str(error).splitlines()[-1].strip()
        raise AcclimateError(
            f"{path} holds no rotation head for {head.in_features} features: {detail}"
        ) from error
    return head


TTT = Recipe(
    name="ttt",
    summary="test-time training on rotations, for models pre-trained with them (Sun et al. 2020)",
    objective=Rotation(),
    selector=Backbone(),
    normalization=Source(),
    optimizer=SGD(lr=1e-3, momentum=0.0),
    episode="image",
    epochs=10,
    batch_size=64,
)
