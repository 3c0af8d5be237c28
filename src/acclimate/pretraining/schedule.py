"""The learning rate as a function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math

__all__ = ["learning_rate"]

_WARM_UP = 0.2


def learning_rate(step: int, *, steps: int, peak: float) -> float:
    """Up in a straight line for a fifth of the way, then down along a cosine to 0.

    >>> [round(learning_rate(s, steps=10, peak=1.0), 2) for s in (0, 1, 2, 6, 10)]
    [0.33, 0.67, 1.0, 0.5, 0.0]
    """
    warm = max(1, round(_WARM_UP * steps))
    if step < warm:
        return peak * (step + 1) / (warm + 1)
    share = (step - warm) / max(1, steps - warm)
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
