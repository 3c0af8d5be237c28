"""What a model predicts for some of the images, and for mild views of them: all without labels.

A model that knows what it sees predicts the same class for an image that is mirrored or cut a
little tighter; one that guesses does not. The error (:mod:`acclimate.guard.estimate`) and the
temperature of calibrated probabilities are estimated from this evidence alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "PASSES",
    "TENSORS",
    "VIEWS",
    "Evidence",
    "joined",
    "mirrored",
    "observe",
    "summarise",
    "zoomed",
]


def mirrored(images: Tensor) -> Tensor:
    """Left and right swapped."""
    return images.flip(-1)


def zoomed(images: Tensor) -> Tensor:
    """The inner seven eighths of each side, at the size of the whole."""
    if images.ndim != 4:
        return images
    wide = images if images.dtype == torch.float64 else images.float()  # a CPU wants no halves
    shrink = torch.tensor([[0.875, 0.0, 0.0], [0.0, 0.875, 0.0]])
    rows = shrink.to(wide).expand(len(wide), 2, 3)
    grid = F.affine_grid(rows, list(wide.shape), align_corners=False)
    seen = F.grid_sample(wide, grid, align_corners=False, padding_mode="reflection")
    return seen.to(images.dtype)


VIEWS: Mapping[str, Callable[[Tensor], Tensor]] = {"mirrored": mirrored, "zoomed": zoomed}
"""Mild changes of an image that leave its class unchanged, whatever the scale of its values."""

PASSES = 1 + len(VIEWS)
"""Forward passes over the images observed."""

TEMPERATURES = torch.tensor([2 ** (step / 8) for step in range(-16, 25)])
"""A quarter to eight: confidences are kept at each."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a model predicted for images and their views, on the CPU.

    ``predicted`` and ``confidence`` are a class and its probability for each image, ``entropy``
    that of all its probabilities, as a share of the largest there is. ``stays`` is whether a view
    (columns, as in ``VIEWS``) is given the same class, ``probability`` how probable that class is
    there; ``confidences`` are those at each of ``TEMPERATURES`` (columns).
    """

    classes: int
    predicted: Tensor
    confidence: Tensor
    entropy: Tensor
    stays: Tensor
    probability: Tensor
    confidences: Tensor

    def __len__(self) -> int:
        return len(self.predicted)

    def temperature(self, accuracy: float) -> float:
        """The temperature at which the mean confidence is this share of one.

        >>> logits = torch.tensor([[2.0, 0.0]])
        >>> evidence = summarise(logits, {"mirrored": logits, "zoomed": logits})
        >>> round(evidence.temperature(float(evidence.confidence.mean())), 3)
        1.0
        """
        gap = self.confidences.double().mean(dim=0) - accuracy
        above = int((gap > 0).sum())  # the mean confidence falls as the temperature rises
        if above in (0, len(gap)):
            return float(TEMPERATURES[min(above, len(gap) - 1)])
        part = float(gap[above - 1] / (gap[above - 1] - gap[above]))
        low, high = (math.log(float(TEMPERATURES[i])) for i in (above - 1, above))
        return math.exp(low + part * (high - low))


def summarise(logits: Tensor, views: Mapping[str, Tensor]) -> Evidence:
    """The evidence in the logits (images × classes) of images and of each of their views."""
    p = logits.float().softmax(dim=1)
    confidence, predicted = p.max(dim=1)
    seen = [views[name].float() for name in VIEWS]
    at = [(logits.float() / t).softmax(dim=1).amax(dim=1) for t in TEMPERATURES.tolist()]
    stays = torch.stack([each.argmax(dim=1) == predicted for each in seen], dim=1)
    own = [each.softmax(dim=1).gather(1, predicted[:, None])[:, 0] for each in seen]
    return Evidence(
        classes=p.shape[1],
        predicted=predicted.cpu(),
        confidence=confidence.cpu(),
        entropy=torch.special.entr(p).sum(dim=1).div(math.log(max(2, p.shape[1]))).cpu(),
        stays=stays.cpu(),
        probability=torch.stack(own, dim=1).cpu(),
        confidences=torch.stack(at, dim=1).cpu(),
    )


TENSORS = tuple(item.name for item in fields(Evidence) if item.name != "classes")
"""What of the evidence is there for each image."""


@torch.no_grad()
def observe(forward: Callable[[Tensor], Tensor], batches: Iterable[Tensor]) -> Evidence:
    """Ask a model about batches of images and their views.

    >>> evidence = observe(lambda x: x.flatten(1)[:, :2], [torch.rand(4, 3, 8, 8)] * 2)
    >>> len(evidence), evidence.stays.shape
    (8, torch.Size([8, 2]))
    """
    parts = [
        summarise(forward(images), {name: forward(view(images)) for name, view in VIEWS.items()})
        for images in batches
    ]
    return joined(parts)


def joined(parts: Sequence[Evidence]) -> Evidence:
    """The evidence of several batches as one."""
    return Evidence(
        classes=parts[0].classes,
        **{name: torch.cat([getattr(part, name) for part in parts]) for name in TENSORS},
    )
