"""Expected calibration error, and the reliability curve it sums up.

Confidence, accuracy and the error are shares of one, as in torchmetrics, and so are the bins: of
equal width, each with its lower end and without its upper one. A confidence of exactly 1 then has
a bin to itself, which matters for models so confident that float32 cannot tell them from certain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from acclimate.errors import AcclimateError
from acclimate.metrics.figure import Figure, figure_of
from acclimate.metrics.sums import Sums, check_shapes, known_labels, refuse, zero

__all__ = ["Calibration", "ReliabilityBin", "ece"]


def ece(logits: Tensor, labels: Tensor, *, bins: int = 15) -> float:
    """Mean over images of the gap between confidence and accuracy in their bin, in [0, 1].

    Images with label -1 are left out.

    >>> logits = torch.tensor([[9.0, 0.0]]).repeat(4, 1)
    >>> round(ece(logits, torch.tensor([0, 0, 1, 1])), 3)
    0.5
    """
    calibration = Calibration(bins=bins)
    calibration.update(logits, labels)
    return calibration.ece().value


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """A point of the reliability curve: images with a confidence from ``low`` up to ``high``."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(kw_only=True)
class Calibration(Sums):
    """Sums by bin of confidence, batch by batch; those of disjoint images add up.

    Sums stay on the device of the logits, and nothing waits for the host before :meth:`ece`.

    >>> calibration = Calibration(bins=2)
    >>> calibration.update(torch.tensor([[0.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1]))
    >>> print(calibration.ece())
    0.250 (2 images)
    >>> [(b.low, b.high, b.count, b.accuracy) for b in calibration.reliability()]
    [(0.0, 0.5, 0, None), (0.5, 1.0, 2, 0.5)]
    """

    unsummed = ("bins",)
    bins: int = 15
    count: Tensor = field(default_factory=zero)
    right: Tensor = field(default_factory=zero)
    confidence: Tensor = field(default_factory=lambda: zero(torch.float64))
    outside: Tensor = field(default_factory=zero)
    nan: Tensor = field(default_factory=zero)

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise AcclimateError(f"expected bins >= 1, got {self.bins!r}")

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add a batch; images with label -1 are left out."""
        check_shapes(logits, labels)
        labels = labels.to(logits.device, non_blocking=True)
        known, outside = known_labels(labels, classes=logits.shape[1], scoring=None)
        # Halves would round confidences into the wrong bin; doubles lose nothing.
        wide = logits if logits.dtype == torch.float64 else logits.float()
        confidence, answer = torch.softmax(wide, dim=1).max(dim=1)
        confidence = confidence.float()
        usable = known & ~confidence.isnan()
        edges = torch.linspace(0, 1, self.bins + 1, device=logits.device)
        index = torch.bucketize(confidence.nan_to_num(), edges, right=True) - 1
        # Softmax may round above 1; those are certain too.
        index = index.clamp_max(self.bins)
        zeros = torch.zeros(self.bins + 1, dtype=torch.float64, device=logits.device)
        whole = zeros.long()
        self.move(logits.device)
        self.merge(
            Calibration(
                bins=self.bins,
                images=len(logits),
                count=whole.index_add(0, index, usable.long()),
                right=whole.index_add(0, index, (usable & (answer == labels)).long()),
                confidence=zeros.index_add(0, index, torch.where(usable, confidence, 0).double()),
                outside=outside,
                nan=confidence.isnan().sum(),
            )
        )

    def merge(self, other: Calibration) -> None:
        """Add the sums of other images (another process, another part of the set)."""
        if other.bins != self.bins:
            raise AcclimateError(
                f"expected sums over {self.bins} bins, got {other.bins}; bin both the same way"
            )
        super().merge(other)

    def reliability(self) -> list[ReliabilityBin]:
        """Confidence and accuracy by bin, the least confident first; None where a bin is empty.

        After the ``bins`` bins comes one from 1 to 1 if any confidence was exactly that.
        """
        edges = np.linspace(0, 1, self.bins + 1).tolist()
        return [
            ReliabilityBin(
                low=edges[i],
                high=edges[min(i + 1, self.bins)],
                count=int(n),
                confidence=confidence / n if n else None,
                accuracy=right / n if n else None,
            )
            for i, (n, right, confidence) in enumerate(self._rows())
            if i < self.bins or n
        ]

    def _rows(self) -> list[list[float]]:
        """Count, right and confidence of each bin."""
        labelled = self.count.sum()
        refuse(images=self.images, labelled=labelled, outside=self.outside, nan=self.nan)
        table = torch.stack([self.count.double(), self.right.double(), self.confidence], dim=1)
        rows: list[list[float]] = table.tolist()
        return rows

    def ece(self, *, interval: float | None = None, draws: int = 1000, seed: int = 0) -> Figure:
        """The expected calibration error in [0, 1], with a bootstrap interval if a level is given.

        Resamples draw how many images fall in each bin and how many of those are right; the mean
        confidence within a bin is held. Noise only ever adds to a mean of gaps, so with few images
        (or a model calibrated to within the noise) the interval lies high.
        """
        count, right, confidence = np.array([row for row in self._rows() if row[0]]).T
        total = int(count.sum())

        def samples(rng: np.random.Generator) -> np.ndarray:
            drawn = rng.multinomial(total, count / total, size=draws)
            drawn_right = rng.binomial(drawn, right / count)
            gaps = np.abs(drawn_right - drawn * (confidence / count)).sum(axis=1) / total
            return np.asarray(gaps)

        return figure_of(
            float(np.abs(right - confidence).sum() / total),
            images=total,
            samples=samples,
            interval=interval,
            draws=draws,
            seed=seed,
            unit="",
        )
