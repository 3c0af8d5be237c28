"""Whether the mix of classes varies from batch to batch, estimated from where batches differ.

Batches that are drawn alike differ from each other as two halves of one batch do. Where batches
come from two appearances (a lamp that flickers), they differ more, and most in the first layers.
Where each holds other classes (images sorted by class, a camera that stays on one object), the last
layer, next to the classifier, differs as much as the first or more. There new statistics mislead.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import torch
from torch import Tensor

__all__ = ["mix_varies", "variation"]

MORE = 1.25
"""The last layer differs by this factor more than within a batch; batches drawn alike stay below
1.2, as long as the weights move little between them."""

LATE = 0.55
"""... and by this part of what the first layers do; two appearances in turn stay below 0.5."""


def variation(layers: Mapping[str, Tensor]) -> tuple[float, float]:
    """How much more batches differ than the halves of each: in the first layers, in the last.

    ``layers`` has for each layer batches × halves × 2 × channels: means and standard deviations.

    >>> halves = torch.tensor([0.0, 1.0]).view(1, 2, 1, 1).expand(3, 2, 2, 4)
    >>> batches = torch.tensor([0.0, 2.0, 4.0]).view(3, 1, 1, 1)
    >>> first, last = variation({"conv": halves, "norm": halves + batches})
    >>> round(first, 2), round(last, 2)
    (0.0, 2.67)
    """
    ratio = torch.stack([_more(each) for each in layers.values()])
    first = ratio[: -(-len(ratio) // 3)]
    return float(first.mean()), float(ratio[-1])


def _more(batches: Tensor) -> Tensor:
    """Distances between batches over those within, of one layer."""
    pairs = list(combinations(range(len(batches)), 2))
    one, other = (batches[[pair[side] for pair in pairs]] for side in (0, 1))
    within = _distance(batches[:, 0] - batches[:, 1])
    return _distance(one - other) / within.clamp_min(1e-12)


def _distance(difference: Tensor) -> Tensor:
    """Root mean square over channels, on average."""
    return difference.square().sum(dim=-2).mean(dim=-1).sqrt().mean()


def mix_varies(layers: Mapping[str, Tensor]) -> bool:
    """Whether batches, as :func:`variation` takes them, differ in their classes.

    >>> mix_varies({"norm": torch.rand(4, 2, 2, 64, generator=torch.manual_seed(0))})
    False
    """
    if not layers or min(map(len, layers.values())) < 2:
        return False
    first, last = variation(layers)
    return last > max(MORE, LATE * first)
