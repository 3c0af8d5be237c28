"""Self-ensembling for domain adaptation (French et al. 2018): a mean teacher on the target."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from acclimate.errors import AcclimateError
from acclimate.methods.self_ensembling import confident, disagreement, unevenness
from acclimate.methods.views import moved
from acclimate.parts.base import option
from acclimate.pretraining.augment import relit
from acclimate.pretraining.methods import METHODS, Batch, Forward, Method

__all__ = ["SelfEnsembling"]

Augmentation: TypeAlias = Literal["none", "tf", "tfa"]


@METHODS.register("self-ensembling")
@dataclass(frozen=True, kw_only=True)
class SelfEnsembling(Method):
    """The student learns classes on the source, and its teacher's predictions on the target.

    The teacher is the student's moving average, and what is returned. The variants of the
    paper's table: MT+TF (``confidence=None, augmentation="tf"``), MT+CT (``augmentation="none"``),
    MT+CT+TF (the default), MT+CT+TFA (``augmentation="tfa"``); ``intensity`` is the augmentation
    made for SVHN, to be used with ``flip=False``.

    Attributes:
        confidence: of the teacher, from which on its prediction counts; None counts all,
            ever more in the course of the training.
        augmentation: none, translation and flip, or affine maps besides.
        flip: mirror images; digits are not to be mirrored.
        intensity: scale, shift and invert the brightness.
        weight: of the difference between student and teacher.
        balance: weight of the loss that keeps the predictions on the target evenly spread, which is
            the binary cross-entropy of each class, added up.
        momentum: how much of the teacher stays at each step.
    """

    uses_target: ClassVar[bool] = True
    revision: ClassVar[int] = 2  # before, the classes of the balance were averaged

    confidence: float | None = option(0.968, low=0, high=1, open_high=True)
    augmentation: Augmentation = "tf"
    flip: bool = False
    intensity: bool = False
    weight: float = option(3.0, low=0)
    balance: float = option(0.005, low=0)
    momentum: float = option(0.99, low=0, high=1, open_high=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augmentation not in ("none", "tf", "tfa"):
            raise AcclimateError(
                f"expected an augmentation of none, tf or tfa, got {self.augmentation!r}"
            )

    def heads(self, model: nn.Module, features: int) -> nn.Module:
        teacher = copy.deepcopy(model)
        # A copy made while the model is tapped would report its own features as the student's.
        for module in teacher.modules():
            module._forward_pre_hooks.clear()
        return teacher.requires_grad_(False)

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        assert batch.target is not None
        logits, _ = forward(self._input(batch.images, batch))
        source = functional.cross_entropy(logits.float(), batch.labels)
        student = forward(self._input(batch.target, batch))[0].float().softmax(dim=1)
        with torch.no_grad():
            teacher = heads(self._input(batch.target, batch)).float().softmax(dim=1)
        apart = disagreement(student, teacher)
        counts, share = self._counting(teacher, batch.progress)
        agreement = (apart * counts).mean()
        total: Tensor = source + self.weight * (
            agreement + self.balance * share * unevenness(student)
        )
        return total

    def _counting(self, teacher: Tensor, progress: float) -> tuple[Tensor, Tensor]:
        """How much each image counts, and how many do."""
        if self.confidence is None:
            # The usual ramp of mean teachers, over the first half of the training.
            level = math.exp(-5 * (1 - min(1.0, 2 * progress)) ** 2)
            counts = torch.full_like(teacher[:, 0], level)
        else:
            counts = confident(teacher, self.confidence)
        return counts, counts.mean()

    def _input(self, images: Tensor, batch: Batch) -> Tensor:
        """Model input, augmented anew."""
        unit = images.float() / 255
        if self.augmentation != "none":
            affine = 0.1 if self.augmentation == "tfa" else 0.0
            unit = moved(unit, batch.generator, flip=self.flip, affine=affine)
        if self.intensity:
            unit = relit(unit, batch.generator)
        return batch.normalize(unit)

    @torch.no_grad()
    def after_step(self, model: nn.Module, heads: nn.Module, *, progress: float) -> None:
        for old, new in zip(heads.state_dict().values(), model.state_dict().values(), strict=True):
            if old.is_floating_point():
                old.lerp_(new, 1 - self.momentum)
            else:
                old.copy_(new)

    def finish(self, model: nn.Module, heads: nn.Module) -> None:
        """The teacher is the better of the two."""
        model.load_state_dict(heads.state_dict())
