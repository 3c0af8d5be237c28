"""Adaptation by self-supervision: tasks that need no labels, on source and target alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from acclimate.errors import AcclimateError, unknown_name
from acclimate.methods.ttt import turned
from acclimate.parts.base import check_range
from acclimate.pretraining.augment import crop_and_flip, relit
from acclimate.pretraining.methods import METHODS, Batch, Forward, Method, check_colour

__all__ = ["UdaSs", "quarter", "upside_down"]


@METHODS.register("uda-ss")
@dataclass(frozen=True, kw_only=True)
class UdaSs(Method):
    """Adaptation by self-supervision (Sun et al. 2019).

    Beside the classes of the source, the model learns tasks that need no labels on both domains:
    by how much a picture was turned, whether it was put upside down, which quarter it is of.

    Attributes:
        tasks: which of them.
        flip: mirror the pictures whose classes are learnt.
        margin: by how many pixels to move those.
        intensity: change and invert the brightness everywhere, as self-ensembling may.
        colour: with ``intensity``, that of each channel by itself: grey ink becomes coloured.
    """

    uses_target: ClassVar[bool] = True

    tasks: tuple[str, ...] = ("rotation", "flip", "location")
    flip: bool = False
    margin: int = 4
    intensity: bool = False
    colour: bool = False

    def __post_init__(self) -> None:
        for task in self.tasks:
            if task not in _TASKS:
                raise unknown_name("task of uda-ss", task, _TASKS)
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise AcclimateError(f"expected one or more different tasks, got {self.tasks}")
        check_range(self, "margin", low=0)
        check_colour(self)

    def heads(self, model: nn.Module, features: int) -> nn.Module:
        """A linear layer for each task."""
        return nn.ModuleDict({task: nn.Linear(features, _TASKS[task][1]) for task in self.tasks})

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        """Cross-entropy of the source's classes plus that of each task on both domains."""
        assert batch.target is not None
        images = crop_and_flip(batch.images, batch.generator, margin=self.margin, flip=self.flip)
        logits, _ = forward(batch.normalize(self._lit(images, batch)))
        total = functional.cross_entropy(logits.float(), batch.labels)
        for task in self.tasks:
            make, kinds = _TASKS[task]
            for domain in (batch.images, batch.target):
                answer = torch.randint(
                    0, kinds, (len(domain),), generator=batch.generator, device=domain.device
                )
                posed = make(self._lit(domain, batch), answer)
                _, features = forward(batch.normalize(posed))
                assert isinstance(heads, nn.ModuleDict)
                total = total + functional.cross_entropy(heads[task](features).float(), answer)
        return total

    def _lit(self, images: Tensor, batch: Batch) -> Tensor:
        unit = images.float() / 255
        return relit(unit, batch.generator, channels=self.colour) if self.intensity else unit


def upside_down(images: Tensor, whether: Tensor) -> Tensor:
    """Some pictures with their top at the bottom."""
    return torch.where(whether.bool()[:, None, None, None], images.flip(2), images)


def quarter(images: Tensor, which: Tensor) -> Tensor:
    """One quarter of each picture, half as wide and high."""
    height, width = images.shape[2] // 2, images.shape[3] // 2
    corners = [(0, 0), (0, width), (height, 0), (height, width)]
    quarters = torch.stack(
        [images[:, :, top : top + height, left : left + width] for top, left in corners]
    )
    return quarters[which, torch.arange(len(images), device=images.device)]


_TASKS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "rotation": (turned, 4),
    "flip": (upside_down, 2),
    "location": (quarter, 4),
}
