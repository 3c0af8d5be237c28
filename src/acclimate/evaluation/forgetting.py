"""How much of the source is forgotten: clean error before and after adaptation elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from acclimate.adaptation.adapt import adapt
from acclimate.data import ImageSource
from acclimate.evaluation.single import evaluate
from acclimate.metrics import ErrorCounts, Figure
from acclimate.parts.statistics import batch_norm_layers

__all__ = ["Forgetting", "forgetting"]


@dataclass(frozen=True, kw_only=True)
class Forgetting:
    """Error on clean images: of the source model, and of the adapted one.

    Attributes:
        before: of the source model as it is.
        after: of the adapted model, its statistics estimated anew on the clean images.
        statistics: False where the model has no batch norm, and nothing was to be estimated.
    """

    before: Figure
    after: Figure
    statistics: bool

    @property
    def points(self) -> float:
        """Points of error the adapted model lost on the source."""
        return self.after.value - self.before.value

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "before": self.before.value,
            "after": self.after.value,
            "images": self.after.images,
            "statistics_estimated_anew": self.statistics,
        }


def forgetting(
    source: nn.Module | ErrorCounts,
    adapted: nn.Module,
    clean: ImageSource,
    *,
    batch_size: int = 128,
    device: str | torch.device | None = None,
    progress: bool = True,
) -> Forgetting:
    """Compare source and adapted model on the source's own images.

    Adapted statistics belong to the shifted images, and would make any model fail on clean ones.
    As in the paper they are estimated anew, so that what is left is what was learnt.

    Args:
        source: the model before adaptation, or its counts on ``clean`` where they are known.
        adapted: the model afterwards.
        clean: labelled images of the source distribution.
        batch_size: images at a time.
        device: where to run; CUDA when there is one.
        progress: show bars on stderr.
    """
    if isinstance(source, nn.Module):
        source = evaluate(
            source, clean, batch_size=batch_size, device=device, progress=progress, title="clean"
        ).errors
    statistics = bool(batch_norm_layers(adapted))
    if statistics:
        adapted = adapt(
            adapted,
            clean,
            "bn",
            batch_size=batch_size,
            device=device,
            guard="off",
            progress=progress,
        ).model
    after = evaluate(
        adapted, clean, batch_size=batch_size, device=device, progress=progress, title="clean"
    ).errors
    return Forgetting(before=source.error(), after=after.error(), statistics=statistics)
