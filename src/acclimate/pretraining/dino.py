"""DINO (Caron et al. 2021): self-distillation between crops, with a linear probe on top.

Its other half, the same loss as test-time adaptation, is :mod:`acclimate.methods.dino`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from acclimate.methods.dino import GLOBAL_CROPS, DinoHead, distillation
from acclimate.methods.views import random_crops
from acclimate.models.outputs import classifier_weight, find_classifier
from acclimate.parts.base import option
from acclimate.pretraining.augment import crop_and_flip, recoloured
from acclimate.pretraining.methods import METHODS, Batch, Forward, Method

__all__ = ["Dino", "DinoParts"]

_LARGE, _SMALL = (0.4, 1.0), (0.1, 0.4)
_LIGHT_MARGIN = 8


class DinoParts(nn.Module):
    """What DINO trains or averages beside the student's backbone.

    That is the heads of student and teacher, the teacher's ``backbone``, which ends where the
    classifier would begin, a linear ``probe`` on its features, and the centre of its projections.
    """

    centre: Tensor

    def __init__(self, model: nn.Module, student: DinoHead) -> None:
        super().__init__()
        name, classifier = find_classifier(model)
        classes, features = classifier_weight(model).shape[:2]
        self.student = student
        self.teacher = copy.deepcopy(student).requires_grad_(False)
        self.backbone = copy.deepcopy(model).requires_grad_(False)
        parent, _, child = name.rpartition(".")
        setattr(self.backbone.get_submodule(parent), child, nn.Identity())
        self.probe = nn.Linear(features, classes, bias=classifier.bias is not None)
        self.register_buffer("centre", torch.zeros(len(student.prototypes)))


@METHODS.register("dino")
@dataclass(frozen=True, kw_only=True)
class Dino(Method):
    """Student and teacher see different crops of an image; their projections must agree.

    Labels teach nothing but the linear probe, on the teacher's features. The teacher is returned,
    with the probe for its classifier.

    Attributes:
        local_crops: small crops of each image, which the student alone sees.
        local_size: their side in px; None is half of the image's.
        student_temperature: of the student's projections.
        teacher_temperature: of the teacher's, lower, so that it is the more confident of the two.
        centre_momentum: how much of the centre of the teacher's projections stays at each step.
        momentum: how much of the teacher stays at the first step; it grows to 1.
        hidden: width of the head's layers.
        bottleneck: width of its last one.
        prototypes: which the head compares with.
    """

    local_crops: int = option(6, low=0)
    local_size: int | None = option(None, low=1)
    student_temperature: float = option(0.1, low=0, open_low=True)
    teacher_temperature: float = option(0.04, low=0, open_low=True)
    centre_momentum: float = option(0.9, low=0, high=1)
    momentum: float = option(0.996, low=0, high=1)
    hidden: int = option(1024, low=1)
    bottleneck: int = option(256, low=1)
    prototypes: int = option(2048, low=2)

    def heads(self, model: nn.Module, features: int) -> nn.Module:
        head = DinoHead(
            features, hidden=self.hidden, bottleneck=self.bottleneck, out=self.prototypes
        )
        return DinoParts(model, head.reset(torch.default_generator))

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(heads, DinoParts)
        device, count = batch.images.device.type, len(batch.images)
        with torch.autocast(device, enabled=False):
            views = self._crops(batch)
            plain = crop_and_flip(
                batch.images,
                batch.generator,
                margin=max(1, batch.images.shape[-1] // _LIGHT_MARGIN),
            )
            views, plain = [batch.normalize(v) for v in views], batch.normalize(plain.float() / 255)
        students = torch.cat([forward(view)[1] for view in views])
        with torch.no_grad():
            seen = heads.backbone(torch.cat([views[0], plain])).flatten(1).float()
        large, light = seen.split([GLOBAL_CROPS * count, count])
        # Cosines that are divided by 0.04 want more digits than half precision has.
        with torch.autocast(device, enabled=False):
            projected = heads.student(students.float()).split(count)
            with torch.no_grad():
                targets = heads.teacher(large)
                mean = targets.mean(dim=0)
                if batch.progress == 0:
                    # From 0, what all projections have in common would be the first thing learnt,
                    # and when the centre takes it away nothing would be left of them.
                    heads.centre.copy_(mean)
            apart = distillation(
                projected,
                targets.split(count),
                heads.centre,
                student_temperature=self.student_temperature,
                teacher_temperature=self.teacher_temperature,
            ).mean()
            heads.centre.lerp_(mean, 1 - self.centre_momentum)
            return apart + functional.cross_entropy(heads.probe(light), batch.labels)

    def _crops(self, batch: Batch) -> list[Tensor]:
        """The large crops of all images in one tensor and, if there are any, the small ones."""
        images, draw = batch.images.float() / 255, batch.generator
        small = self.local_size or images.shape[-1] // 2
        kinds = [(GLOBAL_CROPS, _LARGE, None), (self.local_crops, _SMALL, small)]
        return [
            recoloured(
                random_crops(images.repeat(times, 1, 1, 1), scale, generator=draw, size=size),
                draw,
            )
            for times, scale, size in kinds
            if times
        ]

    @torch.no_grad()
    def after_step(self, model: nn.Module, heads: nn.Module, *, progress: float) -> None:
        assert isinstance(heads, DinoParts)
        share = (1 - self.momentum) * (1 + math.cos(math.pi * progress)) / 2
        for teacher, student in ((heads.backbone, model), (heads.teacher, heads.student)):
            learnt = dict(student.named_parameters())
            for name, parameter in teacher.named_parameters():
                parameter.lerp_(learnt[name], share)

    def finish(self, model: nn.Module, heads: nn.Module) -> None:
        """The teacher is the better of the two; the probe becomes its classifier."""
        assert isinstance(heads, DinoParts)
        name, classifier = find_classifier(model)
        probe = {
            f"{name}.{key}": value.view_as(classifier.state_dict()[key])
            for key, value in heads.probe.state_dict().items()
        }
        model.load_state_dict({**heads.backbone.state_dict(), **probe})

    def files(self, heads: nn.Module) -> dict[str, dict[str, Tensor]]:
        assert isinstance(heads, DinoParts)
        return {"head.safetensors": heads.teacher.state_dict()}
