"""In which order a stream meets the images of its shifts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.experiments.settings import Setting

__all__ = ["correlated_order", "stream_order"]

_MOST_SLOTS = 100


def stream_order(
    setting: Setting, sizes: Sequence[int], labels: Tensor | None, *, seed: int
) -> Tensor:
    """The numbers of all images of some shifts, joined, in the order they are met.

    >>> order = stream_order(Setting("continual"), [2, 3], None, seed=0)
    >>> sorted(order[:2].tolist()), sorted(order[2:].tolist())
    ([0, 1], [2, 3, 4])
    """
    draw = torch.Generator().manual_seed(seed)
    if setting.name == "mixed":
        return torch.randperm(sum(sizes), generator=draw)
    parts, start = [], 0
    for size in sizes:
        if setting.concentration is None:
            order = torch.randperm(size, generator=draw)
        else:
            if labels is None:
                raise AcclimateError("correlated labels need labels to order the images by")
            own = labels[start : start + size]
            order = correlated_order(own, concentration=setting.concentration, generator=draw)
        parts.append(start + order)
        start += size
    return torch.cat(parts)


def correlated_order(labels: Tensor, *, concentration: float, generator: torch.Generator) -> Tensor:
    """An order in which images of a class come together, the more the lower the concentration.

    The images of each class are shared out over as many spans of time as there are classes (100 at
    most) by a draw from a Dirichlet distribution, as Yuan et al. (2023) do; within a span the
    classes come one after the other.

    >>> labels = torch.arange(2).repeat(50)
    >>> order = correlated_order(labels, concentration=1e-3, generator=torch.Generator())
    >>> changes = (labels[order].diff() != 0).sum()
    >>> bool(changes < 5), sorted(order.tolist()) == list(range(100))
    (True, True)
    """
    classes = [int(each) for each in labels.unique()]
    slots = min(len(classes), _MOST_SLOTS)
    spans: list[list[Tensor]] = [[] for _ in range(slots)]
    for each in classes:
        own = (labels == each).nonzero().squeeze(1)
        own = own[torch.randperm(len(own), generator=generator)]
        shares = _dirichlet(slots, concentration, generator)
        ends = (shares.cumsum(0) * len(own)).round().long()
        ends[-1] = len(own)
        start = 0
        for slot, end in enumerate(ends.tolist()):
            spans[slot].append(own[start:end])
            start = end
    ordered = []
    for span in spans:
        turns = torch.randperm(len(span), generator=generator).tolist()
        ordered += [span[turn] for turn in turns]
    return torch.cat(ordered)


def _dirichlet(count: int, concentration: float, generator: torch.Generator) -> Tensor:
    """A draw of shares that add up to 1."""
    # Gamma draws of a small shape a underflow to 0 all together; the logarithm of one is that of a
    # draw of shape a + 1 plus log(U) / a, which loses nothing.
    shape = torch.full((count,), concentration, dtype=torch.float64)
    uniform = torch.rand(count, generator=generator, dtype=torch.float64).clamp_min(1e-300)
    larger = torch._standard_gamma(shape + 1, generator=generator)
    return (larger.log() + uniform.log() / concentration).softmax(dim=0)
