"""Adaptation by self-supervision: tasks that need no labels, on source and target alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from acclimate.errors import AcclimateError, unknown_name
from acclimate.methods.ttt import turned
from acclimate.pretraining.methods import METHODS, Batch, Forward, Relighting

__all__ = ["UdaSs", "quarter", "upside_down"]


@METHODS.register("uda-ss")
@dataclass(frozen=True, kw_only=True)
class UdaSs(Relighting):
    """Adaptation by self-supervision (Sun et al. 2019).

    Beside the classes of the source, the model learns tasks that need no labels on both domains:
    by how much an image was turned, whether it was put upside down, which quarter it is of.

    Attributes:
        tasks: which of them; ``flip`` and ``margin`` are for the images whose classes are learnt.
    """

    tasks: tuple[str, ...] = ("rotation", "flip", "location")

    def __post_init__(self) -> None:
        super().__post_init__()
        for task in self.tasks:
            if task not in _TASKS:
                raise unknown_name("task of uda-ss", task, _TASKS)
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise AcclimateError(f"expected one or more different tasks, got {self.tasks}")

    def heads(self, model: nn.Module, features: int) -> nn.Module:
        return nn.ModuleDict({task: nn.Linear(features, _TASKS[task][1]) for task in self.tasks})

    def loss(self, forward: Forward, heads: nn.Module, batch: Batch) -> Tensor:
        assert batch.target is not None
        shown = self.relit(self.cropped(batch.images, batch), batch)
        logits, _ = forward(batch.normalize(shown))
        total = functional.cross_entropy(logits.float(), batch.labels)
        for task in self.tasks:
            make, kinds = _TASKS[task]
            for domain in (batch.images, batch.target):
                truth = torch.randint(
                    0, kinds, (len(domain),), generator=batch.generator, device=domain.device
                )
                posed = make(self.relit(domain.float() / 255, batch), truth)
                _, features = forward(batch.normalize(posed))
                assert isinstance(heads, nn.ModuleDict)
                total = total + functional.cross_entropy(heads[task](features).float(), truth)
        return total


def upside_down(images: Tensor, whether: Tensor) -> Tensor:
    """Some images with their top at the bottom."""
    return torch.where(whether.bool()[:, None, None, None], images.flip(2), images)


def quarter(images: Tensor, which: Tensor) -> Tensor:
    """One quarter of each image, half as wide and high."""
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
