"""Which model predicts for a stream: the one that adapts, or the unadapted one if that is better.

A stream cannot look ahead, and what helps in fog does harm when one class follows another. So from
time to time both models are shown a batch in mild views; where the error of the adapting one is
estimated to be higher (:mod:`acclimate.guard.estimate`), the unadapted one predicts and nothing is
learnt, until that is no longer so. From a few images that is seldom certain. Where the mix of
classes varies from batch to batch (:mod:`acclimate.guard.variation`) harm is to be expected, and it
is the gain that has to be likely.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from acclimate.guard.estimate import ErrorEstimate, estimate_error, mean_estimate
from acclimate.guard.evidence import TENSORS, Evidence, joined
from acclimate.guard.variation import mix_varies

__all__ = ["ENOUGH_SEEN", "HALVES", "Comparison"]

ENOUGH_SEEN = 64
"""Until so many images have been compared, every batch is; then one of some batches."""

FEW = 32
"""The statistics of batches smaller than this are mostly noise."""

FIRST = 4
"""So many batches are compared in any case."""

SAMPLE_EVERY = 3
"""Of one batch of so many the statistics are kept, to see whether the mix of classes varies."""

SAMPLES = 4
"""It is judged by the last so many of these."""

ODDS = 0.5
"""This part of half an interval of 90 % is exceeded one time in five."""

HALVES = 16
"""Statistics of fewer images are no half of a batch to compare with."""

MOST_SEEN = 192
"""Comparisons are of the last so many images."""

WAITING = 3
"""While the unadapted model predicts, one batch of so many is compared: there is time for it."""


@dataclass
class Comparison:
    """What both models predicted for the latest images, and which of them is used.

    ``contained`` is whether the unadapted one is. ``since`` counts the batches since the last
    comparison, ``compared`` those compared, ``batches`` all. ``samples`` are the statistics of both
    halves of some batches, by layer, ``mix_varies`` whether they differ in their classes. The
    images kept are of batches of so many ``sizes``. The fields are tensors and numbers, so that a
    checkpoint can hold them.
    """

    contained: bool = False
    since: int = 0
    compared: int = 0
    batches: int = 0
    classes: int = 0
    mix_varies: bool = False
    samples: dict[str, Tensor] = field(default_factory=dict)
    unadapted: dict[str, Tensor] = field(default_factory=dict)
    adapted: dict[str, Tensor] = field(default_factory=dict)
    sizes: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    shift: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    _estimate: ErrorEstimate | None = field(default=None, repr=False, compare=False)

    @property
    def images(self) -> int:
        """How many are compared."""
        return len(self.adapted.get("predicted", ()))

    def count(self) -> None:
        """Count a batch, before asking what is due."""
        self.since, self.batches = self.since + 1, self.batches + 1

    def is_due(self, every: int) -> bool:
        """Whether the batch is one to compare."""
        every = min(every, WAITING) if self.contained else every
        few = self.images < ENOUGH_SEEN or self.compared < FIRST
        return few or self.since >= every

    @property
    def sample_is_due(self) -> bool:
        """Whether the batch's statistics are to be kept."""
        return self.batches <= FIRST or self.batches % SAMPLE_EVERY == 0

    def sample(self, halves: Sequence[Mapping[str, Tensor]]) -> None:
        """Keep the statistics of both halves of a batch; compare at once where mixes vary anew.

        Those that are not finite tell nothing, and are left out.
        """
        one, other = halves
        both = {layer: torch.stack([one[layer], other[layer]])[None].float() for layer in one}
        if not all(bool(torch.isfinite(each).all()) for each in both.values()):
            return
        # In the order of the layers, which a checkpoint may not keep.
        self.samples = {
            layer: torch.cat([self.samples.get(layer, new[:0]), new])[-SAMPLES:]
            for layer, new in both.items()
        }
        varied, self.mix_varies = self.mix_varies, mix_varies(self.samples)
        if self.mix_varies != varied:
            self._estimate = None
        if self.mix_varies and not varied:
            self.compared = 0

    def add(self, unadapted: Evidence, adapted: Evidence, shift: Sequence[float]) -> None:
        """Add a batch that both have seen, and decide which is used from now on.

        ``shift`` is how far its statistics are from the source's, layer by layer. Predictions that
        are not finite tell nothing, and are left out.
        """
        self.since, self.compared = 0, self.compared + 1
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
        self.sizes = _kept(torch.cat([self.sizes, torch.tensor([len(adapted)])]))
        self._estimate = None
        if (estimate := self.estimate) is not None:
            change = estimate.change
            if self.mix_varies:  # harm is to be expected, and odds of 4 to 1 against it asked for
                self.contained = change.value + ODDS * (change.high - change.value) > 0
            else:  # as for "harmful"; once it is contained, the other has to be better
                self.contained = (change.value if self.contained else change.low) > 0

    def forget_adapted(self) -> None:
        """Start anew with another adapted model; the choice between both stays."""
        self.unadapted, self.adapted, self.shift = {}, {}, self.shift[:0]
        self.sizes, self._estimate = self.sizes[:0], None

    @property
    def estimate(self) -> ErrorEstimate | None:
        """The error of both on these images, and the difference; None while too few.

        Where the mix of classes varies, the mean over the batches: more classes in use than before
        speak of harm, and several batches together hold them all.
        """
        if self._estimate is None and self.images:  # asked for with every batch's probabilities
            by_batch = self._mean_over(self.sizes.tolist()) if self.mix_varies else None
            self._estimate = by_batch or self._mean_over([self.images])
        return self._estimate

    def _mean_over(self, sizes: Sequence[int]) -> ErrorEstimate | None:
        """The mean of what can be estimated of so many images each."""
        before, after = (self._parts(each, sizes) for each in (self.unadapted, self.adapted))
        shift = self.shift.tolist()
        # Few images are far from the source by chance: how far these are is then not known.
        known = shift if float(self.sizes.double().mean()) >= FEW else []
        found = [
            estimate_error(*pair, learnt=not shift, shift=known)
            for pair in zip(before, after, strict=True)
        ]
        return mean_estimate([each for each in found if each is not None])

    def _parts(self, tensors: Mapping[str, Tensor], sizes: Sequence[int]) -> Iterator[Evidence]:
        split = {name: each.split(list(sizes)) for name, each in tensors.items()}
        for number in range(len(sizes)):
            yield self._evidence({name: parts[number] for name, parts in split.items()})

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


def _kept(sizes: Tensor) -> Tensor:
    """How many of each batch's images are among the last ``MOST_SEEN``.

    >>> _kept(torch.tensor([100, 100, 100])).tolist()
    [92, 100]
    """
    after = sizes.flip(0).cumsum(0).flip(0) - sizes
    left = torch.minimum(sizes, (MOST_SEEN - after).clamp_min(0))
    return left[left > 0]
