"""Which model predicts for a stream: the one that adapts, or the unadapted one if that is better.

A stream cannot look ahead, and what helps in fog does harm when one class follows another. So from
time to time both models are shown a batch in mild views; where the error of the adapting one is
estimated to be higher (:mod:`acclimate.guard.estimate`), the unadapted one predicts and nothing is
learnt, until that is no longer so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from acclimate.guard.estimate import ErrorEstimate, estimate_error
from acclimate.guard.evidence import TENSORS, Evidence, joined

__all__ = ["ENOUGH_SEEN", "Comparison"]

ENOUGH_SEEN = 64
"""Until so many images have been compared, every batch is; then one of some batches."""

MOST_SEEN = 192
"""Comparisons are of the last so many images."""

WAITING = 3
"""While the unadapted model predicts, one batch of so many is compared: there is time for it."""


@dataclass
class Comparison:
    """What both models predicted for the latest images, and which of them is used.

    ``contained`` is whether the unadapted one does. ``since`` counts the batches since the last
    comparison. The fields are tensors and numbers, so that a checkpoint can hold them.
    """

    contained: bool = False
    since: int = 0
    classes: int = 0
    unadapted: dict[str, Tensor] = field(default_factory=dict)
    adapted: dict[str, Tensor] = field(default_factory=dict)
    shift: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    _estimate: ErrorEstimate | None = field(default=None, repr=False, compare=False)

    @property
    def images(self) -> int:
        """How many are compared."""
        return len(self.adapted.get("predicted", ()))

    def is_due(self, every: int) -> bool:
        """Count a batch; whether it is one to compare."""
        self.since += 1
        every = min(every, WAITING) if self.contained else every
        return self.images < ENOUGH_SEEN or self.since >= every

    def add(self, unadapted: Evidence, adapted: Evidence, shift: Sequence[float]) -> None:
        """Add a batch that both have seen, and decide which is used from now on.

        ``shift`` is how far its statistics are from the source's, layer by layer. Predictions that
        are not finite tell nothing, and are left out.
        """
        self.since = 0
        if not bool(torch.isfinite(unadapted.confidence + adapted.confidence).all()):
            return
        self.classes = unadapted.classes
        new = torch.tensor(shift, dtype=torch.float64)
        if len(self.shift) == len(new):
            share = len(adapted) / min(self.images + len(adapted), MOST_SEEN)
            new = share * new + (1 - share) * self.shift
        self.shift = new
        self.unadapted = self._last(self.unadapted, unadapted)
        self.adapted = self._last(self.adapted, adapted)
        self._estimate = None
        if (estimate := self.estimate) is not None:
            change = estimate.change
            # As for "harmful"; once it is used, the other has to be better, not just uncertain.
            self.contained = (change.value if self.contained else change.low) > 0

    def forget_adapted(self) -> None:
        """Start anew with another adapted model; the choice between both stays."""
        self.unadapted, self.adapted, self.shift = {}, {}, self.shift[:0]
        self._estimate = None

    @property
    def estimate(self) -> ErrorEstimate | None:
        """The error of both on these images, and the difference; None while too few."""
        if self._estimate is None and self.images:  # asked for with every batch's probabilities
            before, after = self._evidence(self.unadapted), self._evidence(self.adapted)
            shift = self.shift.tolist()
            self._estimate = estimate_error(before, after, learnt=not shift, shift=shift)
        return self._estimate

    @property
    def temperature(self) -> float:
        """At which the probabilities of the one in use are calibrated; 1 while unknown."""
        estimate = self.estimate
        if estimate is None:
            return 1.0
        error = estimate.before if self.contained else estimate.after
        seen = self._evidence(self.unadapted if self.contained else self.adapted)
        return seen.temperature(1 - error.value / 100)

    def _evidence(self, tensors: Mapping[str, Tensor]) -> Evidence:
        return Evidence(classes=self.classes, **tensors)

    def _last(self, kept: Mapping[str, Tensor], added: Evidence) -> dict[str, Tensor]:
        whole = joined([self._evidence(kept), added]) if kept else added
        return {name: getattr(whole, name)[-MOST_SEEN:] for name in TENSORS}
