"""DINO as test-time adaptation (Caron et al. 2021; the paper's ``tbl:table-5``).

A student and its moving average look at different crops of an image; the student's projection of
one crop must match the teacher's sharpened, centred projection of another. The classifier takes no
part in the loss, so its weights stay as they are and turn the adapted features into predictions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from acclimate.errors import AcclimateError
from acclimate.methods.views import random_crops
from acclimate.models.checkpoints import checkpoints
from acclimate.models.outputs import Outputs, classifier_weight
from acclimate.models.weights import load_weights
from acclimate.parts.base import PARTS, LearnerLike, Step, option
from acclimate.parts.objectives import Objective
from acclimate.parts.optimizers import Adam
from acclimate.parts.selectors import All
from acclimate.parts.teachers import MovingAverage
from acclimate.recipe import Recipe

__all__ = ["DINO", "Dino", "DinoHead", "distillation"]

GLOBAL_CROPS = 2


class DinoHead(nn.Module):
    """Three layers to a bottleneck, then cosine similarities with ``out`` prototypes.

    With ``scaled`` each similarity has a factor that learns, as DINO's own small networks have it.
    """

    def __init__(
        self, features: int, *, hidden: int, bottleneck: int, out: int, scaled: bool = False
    ) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(features, hidden),
            nn.GELU(),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Linear(hidden, bottleneck),
        )
        self.prototypes = nn.Parameter(torch.empty(out, bottleneck))
        self.scale = nn.Parameter(torch.ones(out)) if scaled else None

    def reset(self, generator: torch.Generator) -> DinoHead:
        """Draw the starting weights from a generator of the run's own."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith("bias"):
                    parameter.zero_()
                else:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)
        return self

    def forward(self, x: Tensor) -> Tensor:
        found = F.linear(F.normalize(self.mlp(x), dim=1), F.normalize(self.prototypes, dim=1))
        return found if self.scale is None else found * self.scale


def distillation(
    students: Sequence[Tensor],
    teachers: Sequence[Tensor],
    centre: Tensor,
    *,
    student_temperature: float,
    teacher_temperature: float,
) -> Tensor:
    """Cross-entropy of students with centred, sharpened teachers, of different views, per image.

    The first views of the students are those of the teachers.

    >>> one, other = torch.eye(4), torch.eye(4).flip(0)
    >>> sharp = {"student_temperature": 0.1, "teacher_temperature": 0.04}
    >>> alike = distillation([one, one], [one, one], torch.zeros(4), **sharp)
    >>> bool((alike < distillation([one, other], [one, other], torch.zeros(4), **sharp)).all())
    True
    """
    logs = [F.log_softmax(student / student_temperature, dim=1) for student in students]
    terms = []
    for t, teacher in enumerate(teachers):
        target = F.softmax((teacher.detach() - centre) / teacher_temperature, dim=1)
        terms += [-(target * log).sum(dim=1) for s, log in enumerate(logs) if s != t]
    return torch.stack(terms).mean(dim=0)


@dataclass
class DinoState:
    """The student's head, the centre of the teacher's projections, and the draws for crops."""

    head: DinoHead
    centre: Tensor
    generator: torch.Generator


@PARTS["objective"].register("dino")
@dataclass(frozen=True, kw_only=True)
class Dino(Objective):
    """Self-distillation between crops.

    ``head`` is a file with a trained head, or a model of this package that comes with one,
    ``acclimate:vit-dino-cifar10``; its own sizes count then. The file is one that ``acclimate
    pretrain`` wrote or a full checkpoint of DINO's authors, of which it is the teacher's. Without,
    one of ``hidden``, ``bottleneck`` and ``prototypes`` starts from scratch.

    Local crops are resized to ``local_size`` pixels, or to the image's own size (None), which every
    model accepts; a transformer built for changing sizes saves time with 96.
    """

    needs = frozenset({"features"})
    classifies = False

    student_temperature: float = option(0.1, low=0, open_low=True)
    teacher_temperature: float = option(0.04, low=0, open_low=True)
    centre_momentum: float = option(0.9, low=0, high=1)
    local_crops: int = option(6, low=0)
    local_size: int | None = option(None, low=1)
    hidden: int = option(2048, low=1)
    bottleneck: int = option(256, low=1)
    prototypes: int = option(4096, low=1)
    head: str | None = None

    def prepare(self, learner: LearnerLike) -> DinoState:
        width = classifier_weight(learner.model).shape[1]
        if self.head is None:
            head = DinoHead(
                width, hidden=self.hidden, bottleneck=self.bottleneck, out=self.prototypes
            ).reset(learner.generator)
        else:
            head = _trained_head(self.head, width)
        like = next(learner.model.parameters())
        return DinoState(
            head=head.to(like),
            centre=torch.zeros(len(head.prototypes), device=like.device),
            generator=learner.generator,
        )

    def parameters(self, state: DinoState) -> Mapping[str, nn.Parameter]:
        return dict(state.head.named_parameters())

    def project(
        self, state: DinoState, features: Tensor, weights: Mapping[str, Tensor] | None
    ) -> Tensor:
        projections: Tensor = functional_call(state.head, dict(weights or {}), (features,))
        return projections

    def views(self, state: DinoState, images: Tensor) -> Sequence[Tensor]:
        draw, size = state.generator, self.local_size
        large = [random_crops(images, (0.4, 1.0), generator=draw) for _ in range(GLOBAL_CROPS)]
        small = [
            random_crops(images, (0.05, 0.4), size=size, generator=draw)
            for _ in range(self.local_crops)
        ]
        return large + small

    def loss(self, state: DinoState, step: Step) -> Tensor:
        return distillation(
            [_projections(step.student_of(view)) for view in step.views],
            [_projections(step.teacher_of(view)) for view in step.views[:GLOBAL_CROPS]],
            state.centre,
            student_temperature=self.student_temperature,
            teacher_temperature=self.teacher_temperature,
        )

    def after_step(self, state: DinoState, step: Step) -> None:
        seen = [_projections(step.teacher_of(view)) for view in step.views[:GLOBAL_CROPS]]
        mean = torch.cat(seen).detach().mean(dim=0)
        state.centre = state.centre.lerp(mean, 1 - self.centre_momentum)


def _projections(outputs: Outputs) -> Tensor:
    assert outputs.projections is not None
    return outputs.projections


def _trained_head(name: str, features: int) -> DinoHead:
    """A head as large as its file says."""
    path = Path(name)
    if name.startswith("acclimate:"):
        checkpoint = checkpoints().get(name.removeprefix("acclimate:"))
        head_file = None if checkpoint is None else checkpoint.head()
        if head_file is None:
            raise AcclimateError(f"no DINO head comes with {name!r}; give a safetensors file")
        path = head_file
    tensors = _own_names(load_weights(path, entry="teacher"))
    try:
        prototypes, first = tensors["prototypes"], tensors["mlp.0.weight"]
        head = DinoHead(
            features,
            hidden=len(first),
            bottleneck=prototypes.shape[1],
            out=len(prototypes),
            scaled="scale" in tensors,
        )
        head.load_state_dict({key: tensor.float() for key, tensor in tensors.items()})
    except (KeyError, RuntimeError) as error:
        detail = str(error).splitlines()[-1].strip()
        raise AcclimateError(
            f"{name} holds no weights for a DINO head on {features} features: {detail}"
        ) from error
    return head


_FIRST = "mlp.0.weight"
_NORMALISED = {
    "last_layer.weight_v": "prototypes",
    "last_layer.weight_g": "scale",
    "last_layer.parametrizations.weight.original1": "prototypes",
    "last_layer.parametrizations.weight.original0": "scale",
}
"""A layer of DINO's authors with weight normalisation, as torch wrote it before 2.0 and since."""


def _own_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a head alone, by the names of `DinoHead`.

    >>> published = {"module.backbone.cls_token": torch.zeros(1),
    ...              "module.head.mlp.0.weight": torch.zeros(4, 2),
    ...              "module.head.last_layer.weight_g": torch.ones(3, 1)}
    >>> {name: tuple(tensor.shape) for name, tensor in _own_names(published).items()}
    {'mlp.0.weight': (4, 2), 'scale': (3,)}
    """
    first = next((name for name in tensors if name.endswith(_FIRST)), _FIRST)
    prefix = first.removesuffix(_FIRST)
    own = {
        name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)
    }
    if prefix == "" and not own.keys() & _NORMALISED.keys():
        return own
    found = {_NORMALISED.get(name, name): each for name, each in own.items()}
    return {name: each.flatten() if name == "scale" else each for name, each in found.items()}


DINO = Recipe(
    name="dino",
    summary="DINO self-distillation between crops, for vision transformers (Caron et al. 2021)",
    objective=Dino(),
    selector=All(),
    teacher=MovingAverage(momentum=0.996),
    # Not stated in the paper: AdamW as in DINO's own training, at a fine-tuning rate.
    optimizer=Adam(lr=1e-5),
    batch_size=64,
    epochs=1,
)
