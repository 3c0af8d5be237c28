"""Whether a faster forward pass still says what the exact one says."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["differs", "turns_away"]

_MEAN_LIMIT = 0.02
_ALIGNED = 0.98
_LONGER = 1.25
_SURE = 0.9
"""An exact answer with this much probability must not change."""


def differs(fast: Tensor, exact: Tensor) -> str | None:
    """Why the fast logits are not the exact ones up to the precision; None where they are.

    Rounding to eight bits moves probabilities a little everywhere; it turns no sure answer round,
    and it makes no numbers that are not finite.

    >>> logits = torch.tensor([[4.0, 0.0, 0.0]])
    >>> differs(logits + 0.01, logits), differs(-logits, logits) is None
    (None, False)
    """
    if bool(torch.isfinite(exact).all()) and not bool(torch.isfinite(fast).all()):
        return "its answers are not finite"
    ours, theirs = fast.float().softmax(dim=1), exact.float().softmax(dim=1)
    apart = float((ours - theirs).abs().sum(dim=1).mean() / 2)
    if apart > _MEAN_LIMIT:
        return f"its probabilities are {apart:.1%} apart on average"
    sure = theirs.amax(dim=1) > _SURE
    turned = int((ours.argmax(dim=1) != theirs.argmax(dim=1))[sure].sum())
    return f"it turns {turned} sure answers round" if turned else None


def turns_away(fast: Tensor, exact: Tensor) -> str | None:
    """Why a fast gradient does not go where the exact one goes; None where it does.

    >>> turns_away(torch.tensor([1.0, 0.1]), torch.tensor([1.0, 0.0])) is None
    True
    >>> turns_away(torch.tensor([0.7, 0.7]), torch.tensor([1.0, 0.0]))
    'its gradient points elsewhere (cosine 0.707)'
    >>> turns_away(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0]))
    'its gradient is 2 times as long'
    """
    ours, theirs = fast.double(), exact.double()
    if not float(theirs.norm()):
        return None
    longer = float(ours.norm() / theirs.norm())
    if not 1 / _LONGER < longer < _LONGER:
        return f"its gradient is {longer:.3g} times as long"
    cosine = float(ours @ theirs / (ours.norm() * theirs.norm()))
    return None if cosine > _ALIGNED else f"its gradient points elsewhere (cosine {cosine:.3f})"
