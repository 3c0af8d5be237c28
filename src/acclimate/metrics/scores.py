"""Running sums over predictions, and the scores that come of them.

Nothing waits for the host before :meth:`Tally.scores`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from acclimate.data.labels import Scoring
from acclimate.metrics.sums import Sums, zero

__all__ = ["Scores", "Tally", "effective_classes", "information_maximization", "nuclear_norm_score"]


def effective_classes(mean_probability: Tensor) -> Tensor:
    """exp of the entropy of the average prediction: how many classes are in use, evenly counted."""
    entropy: Tensor = torch.special.entr(mean_probability).sum()
    return entropy.exp()


def information_maximization(*, diversity: float, entropy: float) -> float:
    """H(mean p) - mean H(p), the mutual information of image and class: confident *and* diverse.

    >>> information_maximization(diversity=math.e, entropy=0.0)
    1.0
    """
    return math.log(max(diversity, 1e-12)) - entropy


def nuclear_norm_score(gram: Tensor, images: int) -> float:
    """Nuclear norm of the N × C predictions P from PᵀP, over its upper bound √(N · min(N, C)).

    >>> p = torch.eye(2).repeat(3, 1)
    >>> round(nuclear_norm_score((p.T @ p).double(), images=6), 6)
    1.0
    """
    if images == 0 or not bool(torch.isfinite(gram).all()):
        return 0.0
    eigenvalues = torch.linalg.eigvalsh(gram.double().cpu()).clamp_min(0)
    bound = math.sqrt(images * min(images, gram.shape[0]))
    return float(eigenvalues.sqrt().sum()) / bound


GRAM_CLASSES = 2048
"""Up to this many classes the classes × classes matrix for the nuclear norm is kept."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What is known of a set of predictions. Shares are in [0, 1], ``error`` is in percent."""

    images: int
    labelled: int
    error: float | None
    agreement: float | None
    confidence: float
    entropy: float
    diversity: float
    nuclear_norm: float | None
    loss: float | None
    class_counts: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Scores:
        """Read :meth:`to_dict`'s values back."""
        return cls(**{**plain, "class_counts": tuple(plain["class_counts"])})


def _zero() -> Tensor:
    return zero(torch.float64)


@dataclass(kw_only=True)
class Tally(Sums):
    """Sums over predictions, batch by batch; two tallies of disjoint images add up.

    >>> tally = Tally()
    >>> _ = tally.update(torch.tensor([[4.0, 0.0], [0.0, 4.0]]), labels=torch.tensor([0, 0]))
    >>> tally.scores().error
    50.0
    """

    losses: int = 0
    labelled: Tensor = field(default_factory=_zero)
    wrong: Tensor = field(default_factory=_zero)
    compared: Tensor = field(default_factory=_zero)
    agreeing: Tensor = field(default_factory=_zero)
    confidence: Tensor = field(default_factory=_zero)
    entropy: Tensor = field(default_factory=_zero)
    loss: Tensor = field(default_factory=_zero)
    probability: Tensor = field(default_factory=_zero)
    counts: Tensor = field(default_factory=_zero)
    gram: Tensor = field(default_factory=_zero)

    @torch.no_grad()
    def update(
        self,
        logits: Tensor,
        *,
        labels: Tensor | None = None,
        source: Tensor | None = None,
        scoring: Scoring | None = None,
    ) -> Tensor:
        """Add a batch, ``source`` being the source model's classes; the predicted classes."""
        log_p = torch.log_softmax(logits.float(), dim=1)
        p = log_p.exp()
        top = p.argmax(dim=1)
        classes = logits.shape[1]
        self.move(logits.device)
        if self.images == 0:
            self._start(classes)
        self.images += len(logits)
        self.confidence += p.amax(dim=1).double().sum()
        self.entropy -= (p * log_p).sum(dim=1).double().sum()
        self.probability += p.double().sum(dim=0)
        # Not bincount, which reads its largest value back from the device.
        self.counts.index_add_(0, top, torch.ones_like(top, dtype=torch.float64))
        if self.gram.ndim:
            self.gram += (p.T @ p).double()
        if labels is not None:
            known = labels >= 0
            self.labelled += known.sum()
            answers = top if scoring is None else scoring.predict(logits)
            self.wrong += ((answers != labels) & known).sum()
        if source is not None:
            self.compared += len(source)
            self.agreeing += (top == source).sum()
        return top

    def add_loss(self, loss: Tensor, *, images: int) -> None:
        """Add the losses of so many images, summed up."""
        self.loss = self.loss.to(loss.device) + loss.double()
        self.losses += images

    def _start(self, classes: int) -> None:
        self.probability = self.probability.new_zeros(classes)
        self.counts = self.counts.new_zeros(classes)
        if classes <= GRAM_CLASSES:
            self.gram = self.gram.new_zeros(classes, classes)

    def scores(self) -> Scores:
        """The scores so far."""
        n = max(self.images, 1)
        labelled, compared = int(self.labelled), int(self.compared)
        return Scores(
            images=self.images,
            labelled=labelled,
            error=100 * float(self.wrong) / labelled if labelled else None,
            agreement=float(self.agreeing) / compared if compared else None,
            confidence=float(self.confidence) / n,
            entropy=float(self.entropy) / n,
            diversity=float(effective_classes(self.probability / n)) if self.images else 0.0,
            nuclear_norm=nuclear_norm_score(self.gram, self.images) if self.gram.ndim else None,
            loss=float(self.loss) / self.losses if self.losses else None,
            class_counts=tuple(int(c) for c in self.counts.tolist()) if self.images else (),
        )
